"""What a new user does after reading the README: demo, page, subscription, rows, why; within five minutes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.service.access import read_token
from headgate_studies.testing.browser import open_chromium, why_not

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


@contextmanager
def opened(link: str) -> Iterator[Any]:
    """The page of the link in Chromium; None where there is no Chromium, and the link was only fetched."""
    if (missing := why_not()) is not None:
        print(f"the page is fetched and not opened: {missing}")
        with httpx.Client(timeout=120, trust_env=False, follow_redirects=True) as browser:
            shown = browser.get(link)
            assert shown.status_code == 200
            assert "<html" in shown.text.lower()
        yield None
        return
    with open_chromium() as browser:
        page = browser.new_page()
        page.set_default_timeout(180_000)
        page.goto(link)
        page.get_by_role("heading", name="Overview", level=1).wait_for()
        yield page


def make(http: httpx.Client, page: Any) -> None:
    """Make the subscription by the form, or as the form does."""
    if page is None:
        made = http.post("/api/subscriptions", json=WANTED)
        assert made.status_code == 201, made.text
        assert made.json()["filter"]["simplified"] == WANTED["where"]
        return
    page.evaluate("() => { location.hash = '#/new' }")
    page.get_by_role("heading", name="New subscription", level=1).wait_for()
    page.get_by_label("Name").fill(WANTED["name"])
    page.locator("label:has-text('Stream') > select").first.select_option(WANTED["stream"])
    page.locator("label:has-text('Site to deliver at') > select").select_option(WANTED["site"])
    page.get_by_label("Which rows").fill(WANTED["where"])
    page.get_by_role("button", name="Make it").click()
    page.get_by_role("heading", name=WANTED["name"], level=1).wait_for()


def see(page: Any) -> None:
    """Wait until rows are on the page, and look whether they are the right ones."""
    table = page.get_by_role("region", name="Rows as they arrive")
    table.locator("tbody tr").first.wait_for()
    names, cells = table.evaluate(
        "node => [[...node.querySelectorAll('th')].map((each) => each.textContent),"
        " [...node.querySelectorAll('tbody tr')].map((row) => [...row.children].map((each) => each.textContent))]"
    )
    assert cells
    assert all(float(row[names.index("speed")].replace(",", "")) > 12 for row in cells)


def asked(page: Any, seq: int) -> str:
    """What the page answers about a row."""
    page.evaluate("seq => { location.hash = `#/why?subscription=mine&by=seq&value=${seq}` }", seq)
    page.locator(".paragraph").wait_for()
    return str(page.locator(".paragraph").inner_text())


@pytest.mark.live
@pytest.mark.long
def test_a_new_user_is_there_within_five_minutes(tmp_path: Path) -> None:
    state, began_s = tmp_path / "demo", time.monotonic()
    command = [*PROGRAM, "demo", "--state-dir", str(state), "--seconds", "60"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as demo:
        try:
            assert demo.stdout is not None
            said = ""
            while (page := re.search(r"HTTP API at (http://127\.0\.0\.1:\d+)", said)) is None:
                line = demo.stdout.readline()
                assert line, said
                said += line
            times = {"up": time.monotonic() - began_s}
            link = subprocess.run(
                [*PROGRAM, "login", "--state-dir", str(state)], capture_output=True, text=True, check=True
            ).stdout.strip()
            headers = {"Authorization": f"Bearer {read_token(state)}"}
            with (
                opened(link) as browser,
                httpx.Client(base_url=page[1], headers=headers, timeout=120, trust_env=False) as http,
            ):
                times["page"] = time.monotonic() - began_s
                make(http, browser)
                times["subscription"] = time.monotonic() - began_s
                if browser is not None:
                    see(browser)
                    times["rows on the page"] = time.monotonic() - began_s
                rows = rows_of(http, 20)
                assert all(row["speed"] > 12 for row in rows)
                times["rows"] = time.monotonic() - began_s
                seqs = {row["_seq"] for row in rows}
                missing = next(seq for seq in range(min(seqs) + 1, max(seqs)) if seq not in seqs)
                why = http.get("/api/subscriptions/mine/why", params={"seq": missing}).json()
                assert why["fate"] in ("unmatched", "unwanted")
                if browser is not None:
                    assert asked(browser, missing).startswith(f"Row {missing:,} ")
                    times["why on the page"] = time.monotonic() - began_s
                command = [*PROGRAM, "why", "mine", "--seq", str(missing), "--state-dir", str(state)]
                told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
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
    print("seconds after the start:", ", ".join(f"{name} {each:.1f}" for name, each in times.items()))
    assert times["why"] < MOST_S
