"""The API as `headgate up` serves it: a process of its own, whose address stays when it dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from headgate.service.access import read_token

DOCUMENT = """
sites: {root: {}, edge: {}}
streams: {readings: {root: root, source: {format: nats, payload: json}, schema: {station: string, level: double}}}
subscriptions: {all: {stream: readings, site: edge}}
"""


@pytest.mark.long
@pytest.mark.live
def test_up_serves_the_api_and_its_address_survives_a_crash(tmp_path: Path) -> None:
    (tmp_path / "headgate.yaml").write_text(DOCUMENT)
    command = [sys.executable, "-m", "headgate.cli", "up", "headgate.yaml", "--no-job", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as up:
        try:
            assert up.stderr is not None
            said = ""
            while (found := re.search(r"HTTP API at (http://127\.0\.0\.1:\d+);", said)) is None:
                line = up.stderr.readline()
                assert line, said
                said += line
            token = read_token(tmp_path / ".headgate")
            assert token not in said
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=found[1], headers=headers, timeout=60, trust_env=False) as http:
                assert http.get("/healthz").json() == {"state": "ok"}
                assert "all" in http.get("/api/status").json()["subscriptions"]
                for number in _children(up.pid):
                    os.kill(number, signal.SIGKILL)
                deadline = time.monotonic() + 60
                while True:  # a request under way is lost with the process; the next one waits for the new process
                    try:
                        assert http.get("/readyz").status_code == 200
                        break
                    except httpx.TransportError:
                        assert time.monotonic() < deadline
            printed = subprocess.run(
                [sys.executable, "-m", "headgate.cli", "login"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=True,
            )
            asked = [sys.executable, "-m", "headgate.cli", "why", "all", "--seq", "1"]
            told = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
            assert told == "Row 1 of 'readings' has not been read yet: the last that was committed is 0.\n"
            link = printed.stdout.strip()
            assert link.startswith(f"{found[1]}/login?code=")
            assert httpx.get(link, trust_env=False).status_code == 303
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(60)
    assert up.returncode == 0
    assert (tmp_path / ".headgate" / "http" / "http.log").read_text() == ""


def _children(parent: int) -> list[int]:
    """The processes of the API below a process."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
                above = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            if above == parent and b"headgate.api" in words:
                found.append(int(place.name))
    assert found
    return found
