"""`headgate doctor` names what is wrong with a machine; `headgate support` keeps secrets and rows to itself."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest
from tests.client.helpers import rows
from tests.live import running, small
from typer.testing import CliRunner

from headgate.cli.doctor import register
from headgate.cli.groups import Program
from headgate.service import doctor
from headgate.service.access import make_token

app = Program()
register(app)


def states(state_dir: Path) -> dict[str, doctor.Check]:
    return {each.name: each for each in doctor.examine(state_dir)}


def test_a_machine_that_runs_the_tests_is_well(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["doctor", "--json", "--state-dir", str(tmp_path / "state")])
    assert found.exit_code == 0, found.output
    checks = {each["name"]: each for each in json.loads(found.stdout)}
    assert list(checks) == ["python", "java", "nats", "disk", "clock", "ports", "permissions", "files"]
    assert all(each["fix"] or each["state"] == "good" for each in checks.values())


def test_what_is_wrong_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_token(tmp_path)
    (tmp_path / "http" / "token").chmod(0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(doctor, "find_java", lambda: iter(()))
    monkeypatch.setattr(doctor, "RESERVE_BYTES", 1 << 62)
    future = doctor.time.time() + 3600
    os.utime(tmp_path, (future, future))
    found = states(tmp_path)
    assert (found["permissions"].state, "chmod 600" in found["permissions"].fix) == ("bad", True)
    assert (found["java"].state, "JAVA_HOME" in found["java"].fix) == ("bad", True)
    assert (found["disk"].state, found["clock"].state) == ("bad", "bad")
    assert "in the future" in found["clock"].found
    assert CliRunner().invoke(app, ["doctor", "--state-dir", str(tmp_path)]).exit_code == 1
    tmp_path.chmod(0o777)
    assert "everybody can write" in states(tmp_path)["permissions"].found


@pytest.mark.nats
def test_a_bundle_has_no_secrets_and_no_rows(tmp_path: Path, nats_url: str) -> None:
    state, file = tmp_path / "state", tmp_path / "bundle.tar.gz"
    document = small(all={"site": "leaf", "where": "vehicle = $mine", "context": {"mine": "mypassphrase"}})
    document["streams"]["secretive"] = {
        "root": "root", "schema": {"a": "int"},
        "source": {"format": "kafka", "kafka.sasl.jaas.config": "hunter2", "subscribe": "x"},
    }  # fmt: skip

    async def run() -> str:
        async with running(document, state, nats_url) as live:
            token = make_token(state)
            await live.commit("fleet", rows(0, 20), 0)
            (state / "job.log").write_text(f"connected to nats://me:s3cret@host\npassword=hunter3\n{token}\n")
            words = ["support", str(file), "--state-dir", str(state), "--nats", nats_url]
            words += ["--namespace", live.address.logs.namespace]
            done = await asyncio.create_subprocess_exec(sys.executable, "-m", "headgate.cli", *words)
            assert await done.wait() == 0
            return token

    token = asyncio.run(run())
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        texts = {each.name: archive.extractfile(each).read().decode() for each in archive}  # type: ignore[union-attr]
    assert json.loads(texts["headgate-support/status.json"])["streams"]["fleet"]["rows_in"] == 20
    assert "all" in json.loads(texts["headgate-support/deployment.json"])["subscriptions"]
    assert "connected to nats://me:***@host" in texts["headgate-support/state/job.log"]
    whole = "\n".join(texts.values())
    vehicle = rows(0, 1).column("vehicle").to_pylist()[0]
    for secret in (token, "s3cret", "hunter2", "hunter3", "mypassphrase", str(vehicle)):
        assert secret not in whole, secret
