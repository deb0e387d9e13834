"""Stored files that are damaged: every kind of file is known, and what is damaged is made good or told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headgate.service.stored_files import KINDS, kind_of, unknown_files
from headgate_studies.testing.damage import chosen, make_base, one_case

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "restoring.md").read_text(encoding="utf-8")
# Kind, part of the path, damage, verdict: what each must come to.
CASES = [
    ("messages of a log", "HG_STATE", "removed", "told"),
    ("messages of a log", "HG_INBOX_away", "a bit flipped", "made good"),
    ("messages of a log", "HG_ROOT_rows", "a byte cut", "told"),
    ("messages of a log", "HG_OUTBOX_away", "a bit flipped", "told"),
    ("messages of a log", "HG_ROOT_cars", "a bit flipped", "told"),
    ("the keys", "keys.json", "a bit flipped", "told"),
    ("the operator's credentials", "operator.creds", "a bit flipped", "made good"),
    ("the roles of sites", "roles.json", "a byte cut", "made good"),
    ("the users", "users.json", "removed", "made good"),
]


@pytest.mark.long
@pytest.mark.nats
def test_every_file_is_of_a_kind_and_damage_is_made_good_or_told(tmp_path: Path) -> None:
    async def run() -> None:
        base = await make_base(tmp_path)
        assert unknown_files(base.place) == []  # a new kind of file belongs into KINDS, and into docs/restoring.md
        files = chosen(base.place)
        for kind, part, damage, verdict in CASES:
            (path,) = (path for path in files[kind] if part in str(path))
            found = await one_case(base, path, damage, tmp_path)
            assert found.verdict == verdict, found
            if verdict == "told":
                assert found.verify or found.start, found
        (base.place / "nats" / "something").touch()
        assert unknown_files(base.place) == ["nats/something"]

    asyncio.run(run())


def test_every_kind_of_file_is_documented_and_met_by_its_own_pattern() -> None:
    for kind in KINDS:
        assert f"| {kind.name} |" in DOCUMENTED, kind
        path = kind.pattern.replace("**", "a/b").replace("*", "x")
        assert kind_of(path) == kind, path
