"""The one place that makes a Spark session."""

from __future__ import annotations

import os
import site
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import headgate
from headgate.errors import HeadgateError
from headgate.pipeline.encrypting import encryption, is_encrypted, refused_hint
from headgate.pipeline.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NONE: Mapping[str, str] = {}

UNPACKED = "headgate-job"
"""The directory of an executor that an archive is unpacked into."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class SessionError(HeadgateError):
    """Spark could not be started."""


def make_session(
    name: str,
    master: str = "local[*]",
    options: Mapping[str, str] = _NONE,
    state_dir: Path | None = None,
    archive: Path | None = None,
) -> SparkSession:
    """A Spark session with Headgate's settings; `options` are Spark's own and win over them.

    The process's environment gets what the JVM and the Python workers inherit: JAVA_HOME, PYSPARK_PYTHON (workers run
    this interpreter), SPARK_LOCAL_IP and SPARK_LOCAL_DIRS for a local master, and this package's place on PYTHONPATH,
    so that workers run the same Headgate whether it is installed or a checkout. With an `archive`
    (`headgate.pipeline.packing`) executors of a cluster need nothing but a Python of the same version. What passes
    between driver and executors of a cluster is encrypted (`headgate.pipeline.encrypting`). Sources are
    registered. A session that already runs in this process is returned with the settings that it was started with.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    _prepare_environment(master, state_dir, archive)
    builder = SparkSession.builder.appName(name).master(master)
    ours = {**settings(master, state_dir), **_carried(archive), **encryption(master, options, state_dir)}
    given = dict(options)
    if _JAVA_OPTIONS in given:  # a list of flags, of which the later one wins
        given[_JAVA_OPTIONS] = f"{ours[_JAVA_OPTIONS]} {given[_JAVA_OPTIONS]}"
    for key, value in {**ours, **given}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        java = getattr(error, "java_exception", None)
        reason = str(java.getMessage() if java is not None else error).strip().split("\n", 1)[0]
        standalone = master.startswith("spark:") and is_encrypted(master, options)
        hint = refused_hint(state_dir) if standalone else "check --master and the Spark options"
        raise SessionError(f"Spark did not start on {master!r}: {reason}", hint=hint) from error
    from headgate.pipeline.sources.reading import register_sources

    register_sources(spark)
    return spark


def settings(master: str = "local[*]", state_dir: Path | None = None) -> dict[str, str]:
    """Headgate's Spark settings.

    UTC and ANSI are the filter language's semantics. Rows cross to Python in large batches, because an index of many
    classes takes each row faster among many; bytes bound them, so that wide rows stay small. One Numba thread a worker,
    because Spark already runs a task a core. The checkpoint file manager that renames plain files costs half the CPU of
    the default on a local disk; it is left to Spark where the master is not local, since they are then elsewhere.
    """
    log = Path(__file__).with_name("log4j2.properties").absolute().as_uri()
    found = {
        _JAVA_OPTIONS: f"-Duser.timezone=UTC -Dlog4j2.configurationFile={log}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.python.daemon.module": "headgate.pipeline.daemon",
        "spark.executorEnv.NUMBA_NUM_THREADS": "1",
        "spark.executorEnv.PYTHONPATH": _python_path(),
        "spark.ui.enabled": "false",
        # Hadoop sets the modes of what it writes by itself, whatever the umask of the process is.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
    }
    if is_local(master):
        cores = _cores(master)
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(cores),
            "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        }
    place = Path(tempfile.gettempdir()) / "headgate" if state_dir is None else state_dir
    return {**found, "spark.sql.warehouse.dir": local_uri(place / "spark" / "warehouse")}


def local_uri(path: Path) -> str:
    """A path of this machine as Spark reads it: Hadoop takes a space as it is, and `%20` for three characters.

    >>> local_uri(Path("/tmp/a b"))
    'file:/tmp/a b'
    """
    return f"file:{path.absolute()}"


def _cores(master: str) -> int:
    given = master.partition("[")[2].rstrip("]").partition(",")[0]
    return int(given) if given.isdigit() else (os.cpu_count() or 1) if given == "*" else 1


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own process, and so see its files.

    >>> is_local("local[2]"), is_local("local-cluster[2,1,1024]"), is_local("spark://host:7077")
    (True, False, False)
    """
    return master == "local" or master.startswith("local[")


def _carried(archive: Path | None) -> dict[str, str]:
    """Settings by which executors unpack an archive and run from it."""
    if archive is None:
        return {}
    if not archive.exists():
        raise SessionError(f"there is no archive {archive}", hint="make it with `headgate job pack`")
    return {"spark.archives": f"{local_uri(archive)}#{UNPACKED}", "spark.executorEnv.PYTHONPATH": UNPACKED}


def _prepare_environment(master: str, state_dir: Path | None, archive: Path | None) -> None:
    os.environ["JAVA_HOME"] = str(java_home(state_dir))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if archive is not None:  # by name: executors have their own, and what plans reads on this machine has ours
        os.environ["PYSPARK_PYTHON"] = f"python{sys.version_info.major}.{sys.version_info.minor}"
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if state_dir is not None:
            os.environ.setdefault("SPARK_LOCAL_DIRS", str(state_dir.absolute() / "spark" / "local"))
    os.environ["PYTHONPATH"] = _python_path()


def _python_path() -> str:
    """PYTHONPATH for workers: this package's parent first, unless every interpreter of this environment finds it."""
    parent = str(Path(headgate.__file__).absolute().parent.parent)
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    entries = [str(Path(entry).absolute()) for entry in given]
    if parent not in entries and parent not in site.getsitepackages():
        entries.insert(0, parent)
    return os.pathsep.join(entries)
