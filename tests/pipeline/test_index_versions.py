"""Index files in the job: mapped by workers, brought forward by deltas, rebuilt when damaged; contexts in one order."""

import asyncio
from pathlib import Path

import pytest
from tests.live import expected, running, small
from tests.pipeline.replaying import replay

from headgate.fabric import SyncFabric
from headgate.matching.build import SCAN_LIMIT
from headgate.pipeline.commit import pin_batch
from headgate.pipeline.indexes import IndexKeeper
from headgate.pipeline.sources.generators import generate
from headgate.pipeline.states import IndexRef, hold, read_snapshot
from headgate.wire.manifest import decode_manifest

pytestmark = pytest.mark.nats
MANY = SCAN_LIMIT + 6


def rows(start, stop):
    return generate("fleet", 3, start, stop)


def document(**streams):
    found = small(
        **{
            f"s{k}": {"site": "leaf", "where": "speed BETWEEN $low AND $low + 3", "context": {"low": float(k)}}
            for k in range(MANY)
        }
    )
    found["streams"]["fleet"].update(streams)
    return found


def test_a_worker_goes_to_the_next_version_by_a_delta_and_a_bad_file_is_built_again(tmp_path, nats_url, capsys):
    async def run():
        async with running(document(), tmp_path, nats_url) as live:
            await asyncio.to_thread(first, live)
            await live.client.control(
                "subscribe", name="new", subscription={"stream": "fleet", "site": "mid", "where": "speed > 40"}
            )
            await live.client.control("unsubscribe", name="s3")
            await asyncio.to_thread(second, live)

    held = {}

    def first(live):
        with SyncFabric(live.address.url, live.address.logs) as fabric:
            keeper = held["keeper"] = IndexKeeper(tmp_path / "saved", "fleet")
            pin = pin_batch(fabric, "fleet", 0)
            ref = keeper.ensure(fabric, pin.version)
            held["worker"] = hold(fabric, "fleet", pin.version, ref, None, pin.context)
            assert held["worker"].mapped

    def second(live):
        with SyncFabric(live.address.url, live.address.logs) as fabric:
            keeper, batch = held["keeper"], rows(0, 200)
            pin = pin_batch(fabric, "fleet", 1)
            ref = keeper.ensure(fabric, pin.version)
            snapshot = read_snapshot(fabric, pin.version)
            assert sorted(path.name[:5] for path in (tmp_path / "saved").iterdir()) == ["delta", "index"]
            moved = hold(fabric, "fleet", pin.version, ref, held["worker"], pin.context)
            assert moved.state is held["worker"].state
            fresh = hold(fabric, "fleet", pin.version, ref, None, pin.context)
            right = expected(snapshot, batch)
            assert len(right.ids)
            assert moved.state.match(batch, pin.context).same(right)
            assert fresh.state.match(batch, pin.context).same(right)
            # Another driver goes on from the files; damaged ones are refused by workers and built again.
            assert IndexKeeper(tmp_path / "saved", "fleet").ensure(fabric, pin.version) == ref
            path = Path(ref.directory) / f"delta-{ref.version:012d}.hga"
            data = bytearray(path.read_bytes())
            data[40] ^= 1
            path.write_bytes(data)
            broken = hold(fabric, "fleet", pin.version, ref, None, pin.context)
            assert not broken.mapped
            assert "cannot be used: its header is wrong" in broken.trouble
            assert broken.state.match(batch, pin.context).same(right)
            keeper.complained(pin.version, {broken.trouble})
            again = keeper.ensure(fabric, pin.version)
            assert [each.name for each in (tmp_path / "saved").iterdir()] == [f"index-{again.version:012d}.hga"]
            mended = hold(fabric, "fleet", pin.version, again, broken, pin.context)
            assert mended.state.match(batch, pin.context).same(right)
            gone = IndexRef(str(tmp_path / "nowhere"), again.version)
            assert "is missing" in hold(fabric, "fleet", pin.version, gone, None, pin.context).trouble

    asyncio.run(run())
    assert "is compiled from the catalog" in capsys.readouterr().err


@pytest.mark.parametrize("order", ["updates first", "messages first", "arrival"])
def test_a_replayed_batch_gives_the_same_rows_after_later_context_updates(tmp_path, nats_url, order):
    options = {"method": "batch", "options": {"order": order, "arrived": "at"}}

    async def run():
        async with running(document(admission=options), tmp_path, nats_url) as live:
            await live.commit("fleet", rows(0, 50), 0)
            place = await live.client.set_contexts({"s0": {"low": 10.0}, "s1": {"low": 20.0}})
            snapshot = await live.client.snapshot()
            await live.commit("fleet", rows(50, 100), 1)
            pin, counted = await asyncio.to_thread(committed, live)
            assert (pin.context, pin.version) == (place, snapshot.revision)
            await live.client.set_context("s0", low=55.0)
            await live.client.control(
                "subscribe", name="new", subscription={"stream": "fleet", "site": "mid", "where": "speed > 40"}
            )
            await live.commit("fleet", rows(100, 150), 2)
            for fresh in (False, True):  # a worker that has gone on since, and one that starts
                staged = await asyncio.to_thread(replay, live, pin, rows(50, 100), fresh)
                assert total(staged) == counted
            new = {snapshot.class_ids["s0"]: {"low": 10.0}, snapshot.class_ids["s1"]: {"low": 20.0}}
            # Rows of the generator are from years ago, so by arrival they stand before the updates.
            right = expected(snapshot, rows(50, 100), new if order == "updates first" else None)
            ids, counts = right.class_counts()
            assert counted == dict(zip(ids.tolist(), counts.tolist(), strict=True))
            assert (staged.total("missed") + staged.total("wrong") > 0) == (order == "updates first")

    def committed(live):
        with SyncFabric(live.address.url, live.address.logs) as fabric:
            stored = fabric.last(fabric.logs.root("fleet"), fabric.logs.commit("fleet"))
            manifest = decode_manifest(stored.data)
            pin = pin_batch(fabric, "fleet", 1)
            assert (manifest.batch, manifest.context, manifest.version) == (1, pin.context, pin.version)
            counts = zip(manifest.class_ids.tolist(), manifest.class_counts.tolist(), strict=True)
            return pin, dict(counts)

    def total(staged):
        ids, counts = staged.class_counts()
        return dict(zip(ids.tolist(), counts.tolist(), strict=True))

    asyncio.run(run())
