"""Commands that change a running deployment, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.cli.test_program import Place
from tests.live import small

pytestmark = [pytest.mark.nats, pytest.mark.live, pytest.mark.long]


def test_a_deployment_is_changed_from_the_command_line(tmp_path: Path) -> None:
    document = small(all={"site": "leaf"})
    document["streams"]["fleet"]["rate"] = "100/s"
    file, part = tmp_path / "headgate.yaml", tmp_path / "part.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    part.write_text("sites: {tromso: {upload: 2 MB/s}}\noptions: {replan_approve: true}\n", encoding="utf-8")
    with Place(tmp_path / "state", file) as place:
        up = place.up()
        changed = json.loads(place.run("change", "site mid upload=3MB/s", "link root-mid delay=4ms"))
        assert changed["changed"] == ["links", "site mid"]
        changed = json.loads(place.run("change", "--file", str(part)))
        assert changed["changed"] == ["settings", "site tromso"]
        assert "no site 'mit' (did you mean 'mid'?)" in place.run("change", "site mit upload=1MB/s", code=2)
        assert "nothing to change" in place.run("change", code=2)
        assert "revision" in json.loads(place.run("pause", "all"))
        assert "revision" in json.loads(place.run("resume", "all"))
        assert "unknown subscription 'al'" in place.run("pause", "al", code=2)
        proposal = json.loads(place.run("plans", "propose", "--algorithm", "brush"))
        assert proposal["moves"] == 2
        assert json.loads(place.run("plans", "proposed"))["proposal"] == proposal
        assert json.loads(place.run("plans", "approve", proposal["id"]))["steps"] == proposal["steps"]
        assert "was approved" in place.run("plans", "reject", proposal["id"], code=2)
        history = place.run("plans", "history")
        assert f"plan {proposal['id']} approved: 2 moved, predicted quality " in history
        assert "    fleet: leaf goes from mid to root" in history
        password = tmp_path / "buoy.mqtt"
        place.run("device", "add", "buoy", "--read", "all", "--out", str(password))
        assert password.read_text(encoding="ascii").count(".") == 2
        assert password.stat().st_mode & 0o077 == 0
        assert "there is a file" in place.run("device", "add", "other", "--read", "all", "--out", str(password), code=2)
        assert [each["name"] for each in json.loads(place.run("device", "list", "--json"))] == ["buoy"]
        place.run("device", "revoke", "buoy")
        assert json.loads(place.run("device", "list", "--json")) == []
        place.run("trace", "--for", "1 s", "--rate", "1/2")
        assert "is no share of rows" in place.run("trace", "--rate", "3", code=2)
        up.terminate()
        up.communicate()
