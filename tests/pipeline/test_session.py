from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.pipeline.session import SessionError, make_session, settings


@pytest.mark.spark
def test_the_session_has_the_filter_languages_semantics(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.sparkContext.getConf().get("spark.driver.memory") == "1g"


@pytest.mark.spark
def test_a_second_call_gives_the_running_session(spark):
    assert make_session("again", "local[2]").sparkContext is spark.sparkContext


@pytest.mark.spark
def test_the_checkpoint_manager_exists(spark):
    name = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert spark.sparkContext._jvm.java.lang.Class.forName(name).getSimpleName().startswith("FileSystemBased")


def test_a_cluster_keeps_its_own_addresses_and_checkpoints():
    cluster = settings("spark://somewhere:7077", Path("/tmp/a b"))
    assert not {"spark.driver.host", "spark.sql.streaming.checkpointFileManagerClass"} & set(cluster)
    assert cluster["spark.sql.warehouse.dir"] == "file:/tmp/a b/spark/warehouse"
    assert settings("local[3]")["spark.sql.shuffle.partitions"] == "3"


def test_a_failed_start_is_one_line(monkeypatch, tmp_path):
    from pyspark.sql import SparkSession

    def fail(self):
        raise RuntimeError("Could not parse Master URL: 'nowhere'")

    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    with pytest.raises(SessionError, match=r"did not start on 'nowhere'.*check --master"):
        make_session("x", "nowhere", state_dir=tmp_path)
