"""Ctrl-C at any moment of a start: the program ends soon, and says nothing that only its authors understand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.live import small

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "headgate.yaml"
    path.write_text(yaml.safe_dump({**small(here={"site": "leaf"}), "plan": None}), encoding="utf-8")
    return path


def started(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **environment},
    )


@pytest.mark.slow
@pytest.mark.parametrize("module", ["typer", "numpy", "highspy"])
def test_ctrl_c_while_modules_are_imported(file: Path, tmp_path: Path, module: str) -> None:
    process = started(
        "-v", "-m", "headgate.cli", "up", str(file), "--no-job", "--no-http", "--state-dir", str(tmp_path / "state")
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("# code object from") and f"/{module}/" in line:
            process.send_signal(signal.SIGINT)
            break
    told = [line for line in process.stderr if not line.startswith(("#", "import "))]
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert told == []


@pytest.mark.nats
@pytest.mark.live
def test_ctrl_c_while_a_deployment_is_started(file: Path, tmp_path: Path) -> None:
    """A planner that is compiled for the first time takes most of a minute: the user does not wait for it."""
    process = started(
        *("-m", "headgate.cli", "up", str(file), "--no-job", "--no-http", "--state-dir", str(tmp_path / "state")),
        NUMBA_CACHE_DIR=str(tmp_path / "nothing compiled yet"),
    )
    assert process.stderr is not None
    assert "starting NATS" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.splitlines() == ["stopping before all was started"]
    assert process.returncode == 0
