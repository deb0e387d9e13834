"""Classes that boxes do not decide are matched by the index of their profile type, exactly like a scan of them all."""

import json

import numpy as np
import pyarrow as pa
import pytest

from headgate.filters.profiles import DefaultProfileType, compile_profile, registry
from headgate.matching import ClassSpec, MatchingError, ScanIndex
from headgate.matching.compiled.saved import SavedIndexes
from headgate.matching.definitions import ClassDefinition, RowReading, grouped
from headgate.matching.evaluated import OWN_FROM, Evaluated
from headgate.matching.live import LiveIndex
from headgate.matching.metering import Meter
from headgate.model import Schema

SCHEMA = Schema.of({"topic": "string", "text": "string", "x": "double"})


class Modulo:
    """A profile of the third party: whole numbers with a remainder."""

    columns, parameters = frozenset({"x"}), frozenset()

    def __init__(self, text):
        self.text = text
        self.divisor, self.remainder = (int(part) for part in text.split())

    def evaluate(self, batch, context=None):
        del context
        values = batch.column("x").fill_null(np.nan).to_numpy(zero_copy_only=False)
        return values % self.divisor == self.remainder


class ModuloIndex:
    """One remainder a divisor, looked up for all profiles of it."""

    asked = 0

    def __init__(self):
        self.profiles = {}

    def add(self, number, profile):
        self.profiles[number] = profile

    def remove(self, number):
        del self.profiles[number]

    def match(self, batch):
        type(self).asked += 1
        hits = [(row, n) for n, each in self.profiles.items() for row in np.flatnonzero(each.evaluate(batch))]
        hits.sort()
        rows = (
            np.bincount([row for row, _ in hits], minlength=batch.num_rows) if hits else np.zeros(batch.num_rows, int)
        )
        return np.concatenate([[0], np.cumsum(rows)]), np.array([n for _, n in hits], np.int64)


class ModuloType(DefaultProfileType):
    name = "modulo"

    def compile(self, where, schema, context):
        del schema, context
        return Modulo(where)

    def index(self):
        return ModuloIndex()


class Point:
    """An entry point."""

    name, value = "modulo", "here"

    def load(self):
        return ModuloType()


@pytest.fixture(autouse=True)
def third_party(monkeypatch):
    monkeypatch.setattr(registry, "_offered", lambda: {"modulo": Point()})
    ModuloIndex.asked = 0


def compiled(template):
    profile, where = json.loads(template)
    return compile_profile(profile, where, SCHEMA, {"low": pa.float64()} if "$" in where else {})


READING = RowReading(SCHEMA, compiled, kind_of=lambda template: json.loads(template)[0])


def drawn(rng, identity):
    words = ["storm", "hail", "rain", "drill"]
    level = [str(each) for each in rng.choice(list("abc"), 3)]
    options = [
        ("relational", "x BETWEEN $low AND $low + 9"),
        ("relational", "text RLIKE 'st.*l'"),
        ("topics", f"topic: {level[0]}/{level[1]}"),
        ("topics", f"topic: +/{level[1]}/#"),
        ("topics", f"topic: {level[0]}/+/{level[2]}, {level[1]}*"),
        ("keywords", f"text: {rng.choice(words)} -{rng.choice(words)}"),
        ("modulo", f"{rng.integers(2, 6)} {rng.integers(0, 2)}"),
    ]
    profile, where = options[int(rng.integers(len(options)))]
    context = {"low": float(rng.uniform(0, 50))} if "$" in where else {}
    return ClassDefinition(identity, json.dumps([profile, where]), context)


def rows(rng, count=120):
    topics = ["/".join(rng.choice(list("abc"), int(rng.integers(1, 4)))) for _ in range(count)]
    texts = [" ".join(rng.choice(["storm", "hail", "rain", "drill", "Köln"], 2)) for _ in range(count)]
    hidden = rng.random((3, count)) < 0.1
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(topics, mask=hidden[0]),
            "text": pa.array(texts, mask=hidden[1]),
            "x": pa.array(rng.integers(0, 60, count).astype(float), mask=hidden[2]),
        }
    )


def oracle(definitions, batch):
    return ScanIndex(ClassSpec(each.id, compiled(each.template), each.context) for each in definitions).match(batch)


@pytest.mark.parametrize("seed", range(2))
def test_types_with_an_index_of_their_own_answer_like_a_scan_through_files_and_deltas(tmp_path, seed):
    rng = np.random.default_rng(seed)
    first = {k: drawn(rng, k) for k in range(150)}
    driver = LiveIndex.build(READING, grouped(first.values()))
    saved = SavedIndexes(tmp_path)
    saved.save(1, driver, {})
    worker = saved.open(1, READING)
    batch = rows(rng)
    for index in (driver, worker):
        assert index.match(batch).same(oracle(first.values(), batch))
    assert ModuloIndex.asked == 2
    removed = np.array(sorted(rng.choice(150, 40, replace=False)), np.uint32)
    added = [drawn(rng, 150 + k) for k in range(30)]
    delta = driver.plan(removed, grouped(added))
    second = {**{k: each for k, each in first.items() if k not in removed}, **{each.id: each for each in added}}
    assert delta is not None
    driver.apply(delta)
    saved.append(2, delta, 1, {})
    worker.apply(saved.delta(2))
    for index in (driver, worker, saved.open(2, READING)):
        assert index.match(batch).same(oracle(second.values(), batch))
    worker.bind({k: {"low": 3.0} for k in second})
    bound = [ClassDefinition(k, each.template, {"low": 3.0}) for k, each in second.items()]
    assert worker.match(batch).same(oracle(bound, batch))


def test_a_handful_is_evaluated_and_an_id_names_one_class():
    few = [ClassDefinition(k, json.dumps(["modulo", f"{k + 2} 0"]), {}) for k in range(OWN_FROM)]
    batch = rows(np.random.default_rng(1))
    index = LiveIndex.build(READING, grouped(few[:-1]), limit=0)
    assert index.match(batch).same(oracle(few[:-1], batch))
    assert ModuloIndex.asked == 0
    assert LiveIndex.build(READING, grouped(few), limit=0).match(batch).same(oracle(few, batch))
    assert ModuloIndex.asked == 1
    own = Evaluated(READING.kind_of)
    spec = (few[0].template, ClassSpec(0, compiled(few[0].template)))
    own.add([spec])
    with pytest.raises(MatchingError, match="class id 0 is given twice"):
        own.add([spec])
    own.remove([0, 77])
    assert own.classes.tolist() == []


def test_classes_of_a_types_own_index_are_hidden_from_rows_beyond_their_share():
    rng = np.random.default_rng(3)
    batch = rows(rng, 160)
    definitions = [ClassDefinition(k, json.dumps(["modulo", f"{2 + k % 4} {k % 2}"]), {}) for k in range(OWN_FROM)]
    index = LiveIndex.build(READING, grouped(definitions))
    meter = Meter(lambda: 0.0)
    index.measure(meter)
    everything = index.match(batch)
    meter.serve({0: 0.25, 1: 1 / 64}, 0)
    found = index.match(batch)
    left_out = {each: spent.left_out for each, spent in meter.take().items()}
    assert left_out == {0: 120, 1: 157}
    for row in range(160):
        gone = {each for each, seen in ((0, 40), (1, 3)) if row >= seen}
        assert set(found.row(row).tolist()) == set(everything.row(row).tolist()) - gone
    assert everything.slice(40, 160).class_counts()[0].tolist()[:2] == [0, 1]
    meter.serve({}, 1)
    assert index.match(batch).same(everything)
