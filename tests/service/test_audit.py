"""The audit: every change has its record, records cannot be altered or cut unseen, and nothing shows a secret."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.service.test_users import world

from headgate.client import ClientError
from headgate.fabric import Fabric
from headgate.service.anchoring import missing_records, read_anchor, store_anchor
from headgate.service.audit import FIRST, Audit, AuditError, Author, digest_of, read_audit, redacted, verify_audit

SEED = re.compile(r"S[OAU][A-Z2-7]{56}")


def filled(directory: Path, count: int = 5) -> Audit:
    audit = Audit(directory)
    for number in range(count):
        audit.record(Author("ada", "10.0.0.1"), f"change {number}", {"x": {"before": None, "after": number}}, number)
    return audit


def test_records_are_chained_and_a_later_start_goes_on(tmp_path: Path) -> None:
    audit = filled(tmp_path)
    again = Audit(tmp_path)
    assert again.newest == audit.newest
    again.record(Author("bob"), "one more", {})
    records = list(read_audit(audit.path))
    assert [record["number"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert records[0]["before"] == FIRST
    assert records[5]["before"] == records[4]["hash"]
    assert verify_audit(audit.path, again.newest) == again.newest


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b"ada", b"eve"), *lines[3:]], "line 3: this record was altered"),
        (lambda lines: [*lines[:2], *lines[3:]], "line 3: records before this one were altered or are gone"),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], "line 3: records before this one"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "line 1: records before this one"),
        (lambda lines: lines[1:], "line 1: records before this one"),
        (lambda lines: lines[:-1], "ends with record 4, and there were 5"),
        (lambda lines: [], "ends with record 0, and there were 5"),
        (lambda lines: [*lines[:3], b"garbage\n", *lines[3:]], "line 4: this is no record"),
    ],
)
def test_what_was_done_to_the_file_is_found(tmp_path: Path, spoil: Any, said: str) -> None:
    audit = filled(tmp_path)
    lines = audit.path.read_bytes().splitlines(keepends=True)
    audit.path.write_bytes(b"".join(spoil(lines)))
    with pytest.raises(AuditError, match=said):
        verify_audit(audit.path, audit.newest)


def test_every_single_changed_byte_is_found(tmp_path: Path) -> None:
    audit = filled(tmp_path, 2)
    whole = audit.path.read_bytes()
    for place in range(0, len(whole) - 1, 7):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1
        audit.path.write_bytes(bytes(spoilt))
        with pytest.raises(AuditError):
            verify_audit(audit.path, audit.newest)


def test_a_history_that_was_written_anew_is_not_the_one_that_nats_knows(tmp_path: Path) -> None:
    audit = filled(tmp_path)
    before, lines = FIRST, []
    for record in list(read_audit(audit.path)):
        body = {key: value for key, value in record.items() if key != "hash"} | {"who": "eve", "before": before}
        before = digest_of(body)
        lines.append(json.dumps({**body, "hash": before}))
    audit.path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    verify_audit(audit.path, None)
    with pytest.raises(AuditError, match="record 5 is not the one that NATS knows of"):
        verify_audit(audit.path, audit.newest)


def test_a_record_that_was_cut_off_by_a_crash_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    audit = filled(tmp_path)
    with audit.path.open("ab") as file:
        file.write(b'{"number": 6, "wh')
    assert Audit(tmp_path).newest == audit.newest
    assert "was cut off by a crash" in caplog.text
    verify_audit(audit.path, audit.newest)


def test_the_newest_record_is_kept_in_nats(tmp_path: Path, nats_url: str) -> None:
    async def run() -> None:
        async with await Fabric.connect(nats_url) as fabric:
            await fabric.ensure(fabric.logs.state)
            audit = filled(tmp_path)
            known = await store_anchor(fabric, audit, None)
            assert await read_anchor(fabric) == known == audit.newest
            assert await missing_records(fabric, audit) is None
            audit.path.unlink()
            new = Audit(tmp_path)
            assert "ends with record 0, and there were 5" in (await missing_records(fabric, new) or "")
            assert next(iter(read_audit(new.path)))["what"] == "the audit ends with record 0, and there were 5"

    asyncio.run(run())


@pytest.mark.nats
def test_a_deployment_says_who_changed_what_and_shows_no_secret(tmp_path: Path) -> None:
    """Arguments of processes, logs, files, answers and errors: none has a key, a password or a token."""
    said: list[str] = []

    async def run() -> set[str]:
        async with world(tmp_path) as here:
            state = here.runtime.settings.state_dir
            creds = await here.credentials("ada", subscribe=["*"])
            async with await here.client(creds) as ada:
                await ada.subscribe("hers", stream="fleet", site="leaf", where="speed > 1")
                await ada.move("hers", "root")
                with pytest.raises(ClientError) as refused:
                    await ada.unsubscribe("theirs")
                said.append(str(refused.value))
            await here.operator.unsubscribe("hers")
            await here.operator.control("user-revoke", name="ada")
            said.append(json.dumps(await here.runtime.status()))
            said.append(json.dumps(await here.operator.control("user-list")))
            records = list(read_audit(here.runtime.audit.path))
            told = [(record["who"], record["what"]) for record in records]
            assert told[0] == ("operator", "apply")
            assert [each for each in told if each[0] != "home"][-5:] == [
                ("operator", "user add ada"),
                ("ada", "subscribe hers"),
                ("ada", "move hers to root"),
                ("operator", "unsubscribe hers"),
                ("operator", "user revoke ada"),
            ]
            records = [record for record in records if record["who"] != "home"]
            made, moved, ended = records[-4:-1]
            assert made["from"] == "127.0.0.1"
            assert made["changes"]["subscription hers"]["before"] is None
            assert made["changes"]["subscription hers"]["after"]["where"] == "speed > 1"
            sites = [moved["changes"]["subscription hers"][when]["site"] for when in ("before", "after")]
            assert sites == ["leaf", "root"]
            assert ended["changes"]["subscription hers"]["after"] is None
            assert "pid" in ended["from"]
            assert [record["revision"] for record in (made, moved, ended)] == sorted(
                {record["revision"] for record in (made, moved, ended)}
            )
            return await asyncio.to_thread(collect, state, Path(creds))

    def collect(state: Path, creds: Path) -> set[str]:
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                said.append(file.read_bytes().decode(errors="replace"))
        kept = [state / "nats" / name for name in ("keys.json", "operator.creds", "system.creds", "bridge.creds")]
        others = [file for file in state.rglob("*") if file.is_file() and file not in kept]
        said.extend(file.read_bytes().decode(errors="replace") for file in others)
        secrets = {seed for file in (*kept, creds) for seed in SEED.findall(file.read_text(encoding="utf-8"))}
        assert len(secrets) == 9  # of the operator, of four accounts, and of four users
        return secrets

    secrets = asyncio.run(run())
    assert len(said) > 10
    assert [secret[:4] for secret in secrets if any(secret in text for text in said)] == []


def test_secrets_of_sources_are_stars() -> None:
    given = {"streams": [{"source": {"format": "nats", "Password": "s3cret", "api_token": ["s3cret"]}}], "n": 1}
    assert "s3cret" not in json.dumps(redacted(given))
    assert redacted(given)["n"] == 1
