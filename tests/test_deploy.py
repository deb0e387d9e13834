"""What comes with Headgate for whoever runs it: units, container and compose files. They are read here, not built."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
# Instructions of a container file.
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "container" / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines.splitlines() if line.strip()]


def test_the_container_file_is_sound() -> None:
    found = instructions()
    assert {word for word, _ in found} <= KNOWN
    stages = [text for word, text in found if word == "FROM"]
    assert all(re.search(r":\d", text) for text in stages), "images have a version"
    last = found[max(place for place, (word, _) in enumerate(found) if word == "FROM") :]
    words = [word for word, _ in last]
    assert words.index("USER") < words.index("ENTRYPOINT")
    for word, text in last:
        if word in ("ENTRYPOINT", "CMD"):
            assert json.loads(text), "a list, so that signals arrive"
    for _, text in [each for each in found if each[0] == "COPY" and not each[1].startswith("--from")]:
        for name in text.split()[:-1]:
            assert (ROOT / name).exists(), name
    assert "headgate" in [text for word, text in last if word == "USER"]


def test_the_compose_file_names_what_there_is() -> None:
    place = DEPLOY / "container"
    document = yaml.safe_load((place / "compose.yaml").read_text(encoding="utf-8"))
    for name, service in document["services"].items():
        assert ("image" in service) != ("build" in service), name
        assert "image" not in service or re.search(r":v?\d", service["image"]), name
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith(".") and source != "./headgate.yaml":
                assert (place / source).resolve().exists(), source
            elif not source.startswith("."):
                assert source in document["volumes"], source
    build = document["services"]["headgate"]["build"]
    assert ((place / build["context"]).resolve() / build["dockerfile"]).exists()
    scrape = yaml.safe_load((place / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"][0]
    alone = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yaml").read_text(encoding="utf-8"))[0]
    assert (scrape["job_name"], scrape["static_configs"]) == (alone["job_name"], alone["static_configs"])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_are_sound(unit: Path, tmp_path: Path) -> None:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.read(unit, encoding="utf-8")
    assert set(parser.sections()) == {"Unit", "Service", "Install"}
    assert parser["Service"]["User"] == "headgate"
    assert "headgate" in parser["Service"]["ExecStart"]
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: the unit was read only")
    text = unit.read_text(encoding="utf-8").replace("/opt/headgate/bin/headgate", "/bin/true")
    copy = tmp_path / unit.name
    copy.write_text(text, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if unit.name.split("@")[0] in line]
    assert said == []
