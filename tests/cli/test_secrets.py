"""A password that a user gives in a URL is shown nowhere: not in messages, not in files of the state directory."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.live import small, until

from headgate.catalog import DeploymentError, parse_deployment
from headgate.cli.options import ConnectionOptions
from headgate.errors import HeadgateError, masked
from headgate.fabric import FabricError, find_server
from headgate.fabric.place import choose_port, is_free
from headgate.pipeline.job import JobConfig
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.service.processes import JobProcess

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}
NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nats://me:s3cret@host:4222", "nats://me:***@host:4222"),
        ("nats://s3cret@host", "nats://***@host"),
        ("nats://me:s3@cret@host/x", "nats://me:***@host/x"),
        ("tls://a:s3cret@h1,tls://b:s3cret@h2", "tls://a:***@h1,tls://b:***@h2"),
        ("postgresql+psycopg://me:s3cret@db/x?sslmode=no", "postgresql+psycopg://me:***@db/x?sslmode=no"),
        ("jdbc:db://host/x?password=s3cret&user=me", "jdbc:db://host/x?password=***&user=me"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
    ],
)
def test_texts_are_masked_in_errors_too(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert str(HeadgateError(f"no {text}", where=text, hint=f"try {text}")) == f"{shown}: no {shown} (try {shown})"


@pytest.mark.long
@pytest.mark.slow
def test_an_address_that_does_not_answer(tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(yaml.safe_dump(small(here={"site": "leaf"})), encoding="utf-8")
    command = [sys.executable, "-m", "headgate.cli", "up", str(file), "--state-dir", str(tmp_path / "state")]
    address = f"nats://me:s3cret@{NOBODY}"
    for more, environment, said in (
        # Whoever may look at the list of processes would see it.
        (["--nats", address], {}, f"nats://me:***@{NOBODY} has a password in it"),
        (["--catalog", "postgresql://me:s3cret@127.0.0.1:1/x"], {}, "HEADGATE_CATALOG in the environment"),
        ([], {"HEADGATE_NATS": address}, f"cannot connect to NATS at nats://me:***@{NOBODY}"),
    ):
        done = subprocess.run(
            [*command, *more],
            capture_output=True,
            text=True,
            env={**ENVIRONMENT, **environment},
            timeout=60,
            check=False,
        )
        assert done.returncode == 2
        assert said in done.stderr
        assert "s3cret" not in done.stderr + done.stdout


@pytest.mark.nats
def test_a_user_and_a_password_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of the user's own, with a password; nothing that is said has it."""
    port = choose_port()
    config = tmp_path / "server.conf"
    config.write_text(
        f"host: 127.0.0.1\nport: {port}\njetstream {{ store_dir: {json.dumps(str(tmp_path / 'data'))} }}\n"
        "authorization { user: ada, password: s3cret }\n",
        encoding="utf-8",
    )
    guarded = [sys.executable, "-m", "headgate.fabric.guard", str(find_server()), "-c", str(config)]
    server = subprocess.Popen(guarded, stderr=subprocess.DEVNULL)

    async def run(password: str) -> dict[str, Any]:
        monkeypatch.setenv("HEADGATE_NATS_USER", "ada")
        monkeypatch.setenv("HEADGATE_NATS_PASSWORD", password)
        async with await ConnectionOptions(tmp_path, f"nats://127.0.0.1:{port}").connect() as client:
            return await client.fabric.infos("hg.>")

    async def up() -> bool:
        return not is_free(port)

    try:
        asyncio.run(until(up, 20))
        assert asyncio.run(run("s3cret")) == {}
        with pytest.raises(FabricError, match="give --creds FILE") as refused:
            asyncio.run(run("s3cret2"))
        assert "s3cret" not in str(refused.value)
    finally:
        server.terminate()
        server.wait(10)


def test_a_deployment_file_has_no_password() -> None:
    text = yaml.safe_dump({**small(here={"site": "leaf"}), "nats": {"url": "nats://me:s3cret@host"}})
    with pytest.raises(DeploymentError, match="a deployment file is no place for one") as refused:
        parse_deployment(text, "test.yaml", GENERATOR_SCHEMAS)
    assert "s3cret" not in str(refused.value)


@pytest.mark.slow
def test_the_spark_job_gets_a_password_that_its_files_do_not_show(tmp_path: Path) -> None:
    """The job fails to connect with what it was given, which it could not say had it not been given it."""

    def config(_: int) -> JobConfig:
        return JobConfig(f"nats://me:s3cret@{NOBODY}", "hg", str(tmp_path), nats_options={"password": "s3cret"})

    async def run() -> None:
        job = JobProcess(config, tmp_path)
        running = asyncio.create_task(job.run())
        await until(lambda: _failed(job))
        running.cancel()
        await job.stop()

    asyncio.run(run())
    log, document = (tmp_path / "job.log").read_text(), (tmp_path / "job.json").read_text()
    assert f"cannot connect to NATS at nats://me:***@{NOBODY}" in log
    assert f"nats://me:***@{NOBODY}" in document
    assert "s3cret" not in log + document


async def _failed(job: JobProcess) -> bool:
    return job.restarts > 0
