"""What passes between driver and executors of a standalone cluster: recorded on loopback, plain and encrypted."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.pipeline.encrypting import (
    CLUSTER_FILE,
    ENCRYPTED,
    SECRET,
    EncryptionError,
    cluster_file,
    encryption,
    is_encrypted,
)
from headgate_studies.spark_cluster import SparkCluster

MARKED = "planted text of row"
# The text comes into being on executors, and nothing of it goes through Python, whose sockets are not Spark's.
PROGRAM = """
import sys
from pathlib import Path
from headgate.pipeline.session import make_session
master, state, *given = sys.argv[1:]
options = dict(each.split("=", 1) for each in given)
spark = make_session("recorded", master, options, Path(state))
rows = spark.range(0, 4000, 1, 4).selectExpr("lower(concat('PLANTED TEXT OF ROW', id)) AS text")
rows = rows.repartition(4, "text")
print("rows:", rows.groupBy("text").count().where("count = 1").count(), flush=True)
shown = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/cmdline").read_bytes()
print("arguments:", shown.replace(b"\\0", b" ").decode(), flush=True)
spark.stop()
"""


@dataclass
class Passed:
    """What passed on loopback: bytes in all, and packets with a text."""

    text: bytes
    size: int = 0
    found: int = 0


@contextlib.contextmanager
def recording(text: str) -> Iterator[Passed]:
    """Look at everything that passes on loopback; it is not kept, as other programs use it too."""
    try:
        listening = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
    except PermissionError:
        pytest.skip("recording loopback needs the right to (CAP_NET_RAW)")
    seen, ended = Passed(text.encode()), threading.Event()
    with listening:
        listening.bind(("lo", 0))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        listening.settimeout(0.1)

        def record() -> None:
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    packet = listening.recv(1 << 17)
                    seen.size += len(packet)
                    seen.found += seen.text in packet

        thread = threading.Thread(target=record)
        thread.start()
        try:
            yield seen
        finally:
            ended.set()
            thread.join()


@pytest.mark.long
@pytest.mark.live
@pytest.mark.timeout(900)
@pytest.mark.parametrize("encrypted", [False, True])
def test_no_row_is_seen_between_executors_where_it_is_encrypted(tmp_path: Path, encrypted: bool) -> None:
    state = tmp_path / "state"
    options = ["spark.driver.host=127.0.0.1", "spark.executor.memory=600m", "spark.shuffle.compress=false"]
    options += ["spark.shuffle.readHostLocalDisk=false"]
    options += [
        "spark.sql.shuffle.partitions=4",
        "spark.authenticate=true" if encrypted else "spark.authenticate=false",
    ]
    properties = cluster_file(state) if encrypted else None
    with SparkCluster(tmp_path / "cluster", properties) as cluster, recording(MARKED) as seen:
        cluster.start_master()
        for name in ("one", "two"):
            cluster.start_worker(name)
        cluster.wait(2)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, cluster.url, str(state), *options],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert "rows: 4000\n" in done.stdout, done.stderr[-3000:]
    assert (seen.found > 0) == (not encrypted)
    assert seen.size > 100_000
    if properties is not None:
        secret = dict(line.split() for line in properties.read_text().splitlines() if line[0] != "#")[SECRET]
        assert "spark.authenticate=true" in done.stdout
        assert secret not in done.stdout + done.stderr


def test_the_secret_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = cluster_file(tmp_path)
    before = path.read_text()
    assert cluster_file(tmp_path).read_text() == before
    assert path.stat().st_mode & 0o777 == 0o600
    found = dict(line.split() for line in before.splitlines() if line[0] != "#")
    assert len(found.pop(SECRET)) == 64
    assert found == ENCRYPTED


def test_who_encrypts_and_who_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    assert is_encrypted("spark://127.0.0.1:7077,10.0.0.2:7077", {})
    assert not is_encrypted("spark://[::1]:7077,localhost:7077", {})
    assert not is_encrypted("local-cluster[2,1,1024]", {})
    assert encryption("local[2]", {}, tmp_path) == encryption("yarn", {"spark.authenticate": "false"}, None) == {}
    assert encryption("k8s://https://there", {}, None) == ENCRYPTED
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ
    with pytest.raises(EncryptionError, match=f"write it into {CLUSTER_FILE}"):
        encryption("yarn", {SECRET: "no"}, tmp_path)
    with pytest.raises(EncryptionError, match=r"decline encryption with --spark spark\.authenticate=false"):
        encryption("spark://there:7077", {}, None)
    for _ in range(2):
        assert SECRET not in encryption("spark://there:7077", {}, tmp_path)
        assert os.environ["PYSPARK_SUBMIT_ARGS"].count("--properties-file") == 1
