"""Context updates shed or deferred while a stream runs: counted, declared, estimated, and the same in a replay."""

import asyncio
import time

import pytest
from tests.live import expected, running, small, until
from tests.pipeline.replaying import replay

from headgate.cli.status_sheets import error_lines
from headgate.fabric import SyncFabric
from headgate.matching.admission import compare_lists
from headgate.pipeline.commit import pin_batch
from headgate.pipeline.control import UpdateController
from headgate.pipeline.sources.generators import generate
from headgate.service.books import read_tallies
from headgate.wire.manifest import decode_manifest

pytestmark = pytest.mark.nats
ORIGIN = int(time.time() * 1e6)


def rows(start, stop):
    return generate("fleet", 3, start, stop, origin_us=ORIGIN)


CHOSEN = {
    "load balancing": {"require": {"preset": "load balancing", "bound": "600 s"}},
    "location based service": {"require": {"preset": "location based service", "bound": "600 s"}},
    "by expression": {
        "method": "shed updates",
        "bound": "600 s",
        "options": {"update_victims": "low > 40 AND subscriber <> 's10'"},
    },
}


def document(admission):
    found = small(
        **{
            f"s{k}": {"site": "leaf", "where": "speed BETWEEN $low AND $low + 20", "context": {"low": 5.0 * k}}
            for k in range(12)
        }
    )
    found["streams"]["fleet"]["admission"] = admission
    return found


@pytest.mark.parametrize("scenario", CHOSEN)
def test_updates_that_do_not_fit_are_left_out_and_a_replay_leaves_out_the_same(tmp_path, nats_url, scenario):
    async def run():
        async with running(document(CHOSEN[scenario]), tmp_path, nats_url) as live:
            snapshot = await live.client.snapshot()
            stream = snapshot.deployment.streams["fleet"]
            live.readers.start(["s0"])
            await live.commit("fleet", rows(0, 60), 0)
            # A value takes 100 s: of ten, five are shed to come down to 540 s, or all but two wait.
            live.controllers["fleet"] = UpdateController(stream, row_cost_s=1e-6, update_cost_s=100.0)
            new = {f"s{k}": {"low": 60.0 - 4.0 * k} for k in range(10)}
            if scenario == "by expression":  # all in one message of the log
                place = await live.client.set_contexts(new)
                places = dict.fromkeys(new, place)
            else:
                places = {name: await live.client.set_context(name, **values) for name, values in new.items()}
            await live.commit("fleet", rows(60, 120), 1)
            manifest, pin = await asyncio.to_thread(committed, live)
            skipped = set(manifest.skipped.tolist())
            applied = {
                snapshot.class_ids[name]: new[name]
                for name, place in places.items()
                if place <= manifest.context and place not in skipped
            }
            left = 0 if scenario == "location based service" else 5
            assert manifest.shed_updates == left
            assert len(skipped) == (5 if scenario == "load balancing" else 0)
            if scenario == "by expression":  # of the ten, the five that the expression names
                assert list(manifest.partly) == [place]
                applied = {each: values for each, values in applied.items() if values["low"] <= 40}
            assert len(applied) == (5 if left else 2)
            assert pin.head == max(places.values())
            assert counts(manifest.class_ids, manifest.class_counts) == of(expected(snapshot, rows(60, 120), applied))
            await live.commit("fleet", rows(120, 121), 2)
            for fresh in (False, True):
                staged = await asyncio.to_thread(replay, live, pin, rows(60, 120), fresh)
                assert counts(*staged.class_counts()) == counts(manifest.class_ids, manifest.class_counts)
            true = {snapshot.class_ids[name]: values for name, values in new.items()}
            right, given = (expected(snapshot, rows(60, 120), each) for each in (true, applied))
            missed, wrong = (errors.sum() for errors in compare_lists(right, given))
            assert min(missed, wrong) > 0
            # So few rows and classes are all in the sample.
            assert (staged.total("missed"), staged.total("wrong")) == (pytest.approx(missed), pytest.approx(wrong))
            assert (staged.total("missed_var"), staged.total("wrong_var")) == (0, 0)
            await told(live, left)
            # A new version of the catalog takes every value, whatever was left out before.
            subscription = {"stream": "fleet", "site": "mid", "where": "speed > 400"}
            await live.client.control("subscribe", name="new", subscription=subscription)
            await live.commit("fleet", rows(121, 180), 3)
            healed, _ = await asyncio.to_thread(committed, live, 3)
            assert (len(healed.skipped), len(healed.partly), healed.shed_updates) == (0, 0, 0)
            assert counts(healed.class_ids, healed.class_counts) == of(expected(snapshot, rows(121, 180), true))

    async def told(live, left):
        async def declared():
            tallies = await read_tallies(live.client.fabric)
            return [tally.shed_updates for tally in tallies.values()] == [left]

        await until(declared)
        status = await live.runtime.status()
        assert status["streams"]["fleet"]["shed_updates"] == left
        lines = error_lines(status)
        assert ("stream fleet: 5 new values of contexts shed" in lines) == bool(left)
        assert any("matches missed" in line for line in lines)

    def committed(live, batch=1):
        with SyncFabric(live.address.url, live.address.logs) as fabric:
            stored = fabric.last(fabric.logs.root("fleet"), fabric.logs.commit("fleet"))
            manifest = decode_manifest(stored.data)
            pin = pin_batch(fabric, "fleet", batch)
            assert (manifest.batch, manifest.context, manifest.version) == (batch, pin.context, pin.version)
            assert manifest.skipped.tolist() == list(pin.skipped)
            assert manifest.partly == pin.left_out.partly
            return manifest, pin

    def counts(ids, found):
        return dict(zip(ids.tolist(), found.tolist(), strict=True))

    def of(lists):
        return counts(*lists.class_counts())

    asyncio.run(run())
