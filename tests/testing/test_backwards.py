"""A few rounds of the campaign that moves state backwards, and the proof that it would see what it looks for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.fabric import FencedError
from headgate.pipeline.commit import build_manifest
from headgate.wire.manifest import decode_manifest, encode_manifest
from headgate_studies.testing import backwards, model_query

pytestmark = pytest.mark.nats


@pytest.mark.parametrize("kind", backwards.KINDS)
@pytest.mark.parametrize("seed", [11, 12])
def test_nothing_is_lost_without_a_word(kind, seed, nats_url, tmp_path, capsys):
    outcome = backwards.play(kind, nats_url, tmp_path, seed)
    assert outcome.rows > 50
    assert (outcome.lost_silently, outcome.twice_silently) == ([], []), outcome


def kept(fabric, stream, directory, *, accept=False):
    """As it was before: any checkpoint is believed."""
    directory.mkdir(parents=True, exist_ok=True)
    return "line"


def numbered(fabric, stream, lineage, batch, pin, staged, reading):
    """As it was before: a batch whose number is not newer is dropped, whatever it holds."""
    logs = fabric.logs
    stored = fabric.last(logs.root(stream), logs.commit(stream))
    last = decode_manifest(stored.data) if stored else None
    if last is not None and batch <= last.batch:
        return None
    manifest = build_manifest(stream, lineage, batch, pin, staged, last.upto if last else 0, 0)
    try:
        fabric.publish(logs.commit(stream), encode_manifest(replace(manifest, ranges=reading.ranges)))
    except FencedError:
        return None
    return manifest


@pytest.mark.parametrize("kind", backwards.KINDS)
def test_the_campaign_sees_batches_that_are_dropped_by_their_number(kind, nats_url, tmp_path, monkeypatch):
    monkeypatch.setattr(model_query, "resume", kept)
    monkeypatch.setattr(model_query, "commit", numbered)
    monkeypatch.setattr(backwards.BackwardsWorld, "move", lambda world: world.take_back())
    lost = 0
    for seed in range(3):
        lost += len(backwards.play(kind, nats_url, tmp_path / str(seed), seed).lost_silently)
    assert lost > 0
