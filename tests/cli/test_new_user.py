"""What a new user does after reading the README: demo, page, subscription, rows, why; within five minutes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.service.access import read_token

PROGRAM = (sys.executable, "-m", "headgate.cli")
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
MOST_S = 300.0
WANTED = {"name": "mine", "stream": "fleet", "site": "lyon", "where": "speed > 12"}


def rows_of(http: httpx.Client, count: int) -> list[dict[str, Any]]:
    """Rows of the new subscription, as a browser gets them."""
    found: list[dict[str, Any]] = []
    with http.stream("GET", "/api/subscriptions/mine/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("data:"):
                found += json.loads(line[5:]).get("rows", [])
            if len(found) >= count:
                return found
    raise AssertionError(f"only {len(found)} rows came")


@pytest.mark.live
@pytest.mark.long
def test_a_new_user_is_there_within_five_minutes(tmp_path: Path) -> None:
    state, began_s = tmp_path / "demo", time.monotonic()
    command = [*PROGRAM, "demo", "--state-dir", str(state), "--seconds", "45"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as demo:
        try:
            assert demo.stdout is not None
            said = ""
            while (page := re.search(r"HTTP API at (http://127\.0\.0\.1:\d+)", said)) is None:
                line = demo.stdout.readline()
                assert line, said
                said += line
            times = {"page": time.monotonic() - began_s}
            link = subprocess.run(
                [*PROGRAM, "login", "--state-dir", str(state)], capture_output=True, text=True, check=True
            ).stdout.strip()
            with httpx.Client(timeout=120, trust_env=False, follow_redirects=True) as browser:
                shown = browser.get(link)
                assert shown.status_code == 200
                assert "<html" in shown.text.lower()
            headers = {"Authorization": f"Bearer {read_token(state)}"}
            with httpx.Client(base_url=page[1], headers=headers, timeout=120, trust_env=False) as http:
                made = http.post("/api/subscriptions", json=WANTED)
                assert made.status_code == 201, made.text
                assert made.json()["filter"]["simplified"] == "speed > 12"
                times["subscription"] = time.monotonic() - began_s
                rows = rows_of(http, 20)
                assert all(row["speed"] > 12 for row in rows)
                times["rows"] = time.monotonic() - began_s
                seqs = {row["_seq"] for row in rows}
                missing = next(seq for seq in range(min(seqs) + 1, max(seqs)) if seq not in seqs)
                why = http.get("/api/subscriptions/mine/why", params={"seq": missing}).json()
                assert why["fate"] in ("unmatched", "unwanted")
                asked = [*PROGRAM, "why", "mine", "--seq", str(missing), "--state-dir", str(state)]
                told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
                assert told.startswith(f"Row {missing:,} ")
                if why["fate"] == "unmatched":
                    assert "`speed > 12` is not true (speed is" in told
                times["why"] = time.monotonic() - began_s
            output, _ = demo.communicate(timeout=MOST_S)
        finally:
            if demo.poll() is None:
                demo.kill()
                demo.communicate()
    assert demo.returncode == 0, output[-3000:]
    assert "difference 0" in output
    times["demo"] = time.monotonic() - began_s
    print({name: round(each, 1) for name, each in times.items()})
    assert times["why"] < MOST_S
