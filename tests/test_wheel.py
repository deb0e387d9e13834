"""The wheel of the product: what is in the repository is in it, and a service runs from it alone, with its pages."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from headgate.service.access import read_token

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = """
sites: {root: {}, edge: {}}
streams: {readings: {root: root, source: {format: nats, payload: json}, schema: {level: double}}}
subscriptions: {high: {stream: readings, site: edge, where: level > 10}}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the backend that is pinned here; nothing is fetched."""
    built = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = built.glob("*.whl")
    return found


def tracked() -> set[str]:
    """The files of the product, by their places in a wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "src/headgate"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {name.removeprefix("src/") for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_product_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if not name.endswith("/")}
        about = {name.partition("/")[2]: name for name in names if ".dist-info/" in name}
        entry, metadata = (packed.read(about[name]).decode() for name in ("entry_points.txt", "METADATA"))
    inside = names - set(about.values())
    assert tracked() - inside == set(), "files that the wheel lacks"
    assert {name for name in inside - tracked() if "__pycache__" in name or not (ROOT / "src" / name).exists()} == set()
    assert {"headgate/api/static/index.html", "headgate/api/static/client/headgate-client.d.ts"} <= inside
    assert "headgate = headgate.cli" in entry
    assert "licenses/LICENSE" in about
    assert re.search(r"^Provides-Extra: service$", metadata, re.MULTILINE)


@pytest.mark.live
@pytest.mark.long
def test_a_service_runs_from_the_wheel_alone_and_serves_its_pages(tmp_path: Path, wheel: Path) -> None:
    target, away = tmp_path / "installed here", tmp_path / "some where"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(target)
    away.mkdir()
    (away / "headgate.yaml").write_text(DOCUMENT, encoding="utf-8")
    # The planner of a wheel is compiled at its first start, for minutes: what was compiled here is taken over.
    for cached in (ROOT / "src/headgate/planning").glob("**/__pycache__/*.nb[ci]"):
        place = target / cached.relative_to(ROOT / "src")
        place.parent.mkdir(exist_ok=True)
        shutil.copy2(cached, place)
    environment = {**os.environ, "PYTHONPATH": str(target), "HEADGATE_STATE_DIR": "state"}
    program = [sys.executable, "-P", "-m", "headgate.cli"]
    where = [sys.executable, "-P", "-c", "import headgate; print(headgate.__file__)"]
    told = subprocess.run(where, cwd=away, env=environment, check=True, capture_output=True, text=True).stdout
    assert Path(told.strip()).is_relative_to(target)
    command = [*program, "up", "headgate.yaml", "--no-job", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=away, env=environment, stderr=subprocess.PIPE, text=True) as up:
        try:
            assert up.stderr is not None
            said = ""
            while (page := re.search(r"HTTP API at (http://127\.0\.0\.1:\d+)", said)) is None:
                line = up.stderr.readline()
                assert line, said
                said += line
            headers = {"Authorization": f"Bearer {read_token(away / 'state')}"}
            with httpx.Client(base_url=page[1], headers=headers, timeout=60, trust_env=False) as http:
                assert "<html" in http.get("/").text.lower()
                assert http.get("/api/status").json()["subscriptions"].keys() == {"high"}
                static = ROOT / "src/headgate/api/static"
                for path in sorted((*static.glob("app/**/*.*"), *static.glob("client/*"))):
                    served = http.get(f"/static/{path.relative_to(static).as_posix()}")
                    assert (served.status_code, served.content) == (200, path.read_bytes()), path
            asked = [*program, "why", "high", "--seq", "1", "--json"]
            answer = subprocess.run(asked, cwd=away, env=environment, check=True, capture_output=True, text=True)
            assert json.loads(answer.stdout)["fate"] == "unread"
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(60)
    assert up.returncode == 0
