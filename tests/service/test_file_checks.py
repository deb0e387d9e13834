"""Files of a state directory: each kind has a check or a reason to have none, and a changed bit is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.fabric.accounts import HOME, Keys
from headgate.fabric.devices import Device, Devices
from headgate.fabric.host_notes import lacking, read_seen, take_seen, write_seen
from headgate.fabric.keys import CredentialsError, KeyPair, check_credentials, check_statement
from headgate.fabric.membership import Membership
from headgate.fabric.registry import Registry, User
from headgate.fabric.rolebook import Chapter, OldLink, write_chapter
from headgate.service.file_checks import CHECKS, UNCHECKED, check_files
from headgate.service.state_format import check_format
from headgate.service.stored_files import KINDS, kind_of
from headgate.service.survey import mark_checkpoints


def test_every_kind_of_file_has_a_check_or_a_reason() -> None:
    assert CHECKS.keys() | UNCHECKED.keys() == {kind.name for kind in KINDS}
    assert CHECKS.keys() & UNCHECKED.keys() == set()


def state_of(state: Path) -> Path:
    """What a deployment and a host have stored, as far as it needs no server."""
    for place in (state, state / "sites" / "oslo"):
        nats = place / "nats"
        nats.mkdir(parents=True)
        keys = Keys.open(nats)
        (nats / "operator.creds").write_text(keys.all_rights(HOME, "operator"), encoding="utf-8")
        (nats / "bridge.mqtt").write_text(keys.password(Device("b", KeyPair.new("user").public, 1, ("*",))), "utf-8")
        (nats / "accounts").mkdir()
        (nats / "accounts" / "A.jwt").write_text(keys.account(HOME, {}), encoding="utf-8")
        (nats / "data" / "jetstream").mkdir(parents=True)
        Registry().added(User("ada", "UA", 1, subscribes=("rows",))).write(nats)
        Devices().added(Device("d", "UD", 1, ("all",))).write(nats)
        write_chapter(nats, "hg", Chapter(("root", "leaf"), (OldLink("s", "root", "leaf", 3),)))
    write_seen(state / "sites" / "oslo" / "nats", {})
    Membership("oslo", "nats://127.0.0.1:1").write(state, keys.all_rights(HOME, "oslo"))
    mark_checkpoints(state / "checkpoints", "d", {"rows": "i"})
    check_format(state)
    return state


def test_a_changed_bit_and_a_cut_are_named_and_so_is_what_is_missing(tmp_path: Path) -> None:
    state = state_of(tmp_path / "state")
    count, wrong = check_files(state)
    assert wrong == []
    checked = [path for path in sorted(state.rglob("*")) if path.is_file() and _kind(state, path) in CHECKS]
    assert count == len(checked) > 15
    for path in checked:
        whole = path.read_bytes()
        for place in (len(whole) // 2, len(whole) // 3, 0):
            if place or path.suffix != ".creds":  # a dash before the heading means nothing
                path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
                assert [each for each in check_files(state)[1] if path.name in each], (path, place)
        path.write_bytes(whole[: len(whole) // 2])
        if _kind(state, path) != "the format of the directory":
            assert [each for each in check_files(state)[1] if path.name in each], path
        path.write_bytes(whole)
    for name in ("nats/keys.json", "sites/oslo/nats/keys.json", "nats/users.json", "site.creds"):
        whole = (state / name).read_bytes()
        (state / name).unlink()
        assert any(name in each for each in check_files(state)[1]), name
        (state / name).write_bytes(whole)
    assert check_files(state) == (count, [])


def _kind(state: Path, path: Path) -> str:
    kind = kind_of(path.relative_to(state).as_posix())
    return "" if kind is None else kind.name


def test_credentials_of_another_key_are_refused() -> None:
    account, one, other = KeyPair.new("account"), KeyPair.new("user"), KeyPair.new("user")
    statement = account.sign({"sub": one.public})
    text = f"-----BEGIN NATS USER JWT-----\n{statement}\n-----BEGIN USER NKEY SEED-----\n{{}}\n"
    check_credentials(text.format(one.seed))
    with pytest.raises(CredentialsError, match="not that of the statement"):
        check_credentials(text.format(other.seed))
    head, body, _ = statement.split(".")
    forged = KeyPair.new("account").sign({"sub": one.public}).split(".")[2]
    with pytest.raises(CredentialsError, match="signature"):
        check_statement(f"{head}.{body}.{forged}")


def test_a_bit_in_a_name_of_the_keys_makes_no_new_keys(tmp_path: Path) -> None:
    Keys.open(tmp_path)
    (tmp_path / "data" / "jetstream").mkdir(parents=True)
    text = (tmp_path / "keys.json").read_text(encoding="utf-8")
    (tmp_path / "keys.json").write_text(text.replace('"people"', '"pe_ple"'), encoding="utf-8")
    with pytest.raises(Exception, match="pe_ple"):
        Keys.open(tmp_path)
    assert "pe_ple" in (tmp_path / "keys.json").read_text(encoding="utf-8")


def test_what_was_noted_at_a_stop_holds_once(tmp_path: Path) -> None:
    (tmp_path / "seen.json").write_text(json.dumps({"HG_OUTBOX_oslo": [9, 4]}), encoding="utf-8")
    assert lacking({}, read_seen(tmp_path)) == {"HG_OUTBOX_oslo": 4}
    assert take_seen(tmp_path) == {"HG_OUTBOX_oslo": (9, 4)}
    assert take_seen(tmp_path) == {}
