from __future__ import annotations

import pyarrow as pa
import pytest

from headgate.model import Schema
from headgate.pipeline.sources.payloads import PayloadMessage, decode_arrow, decode_text

SCHEMA = Schema.of(
    {"name": "string", "n": "int", "x": "double", "at": "timestamp", "tags": "array<string>", "_raw": "string"}
    | {"_error": "string"}
).arrow


def ipc(*batches):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decoded(*payloads):
    messages = [PayloadMessage(sequence, data) for sequence, data in enumerate(payloads, start=1)]
    return pa.Table.from_batches(decode_arrow(messages, SCHEMA), SCHEMA).to_pylist()


def test_columns_are_found_by_name_and_widened():
    batch = pa.record_batch(
        {
            "x": pa.array([1, 2], pa.int16()),
            "unknown": [True, False],
            "n": pa.array([1.0, 2.0], pa.float32()),
            "name": pa.array(["a", None]).dictionary_encode(),
            "at": pa.array([1, 2], pa.timestamp("ms")),
            "tags": pa.array([["p"], None], pa.large_list(pa.large_string())),
        }
    )
    rows = decoded(ipc(batch, batch.slice(0, 1)))
    assert [(row["name"], row["n"], row["x"], row["tags"]) for row in rows] == [
        ("a", 1, 1.0, ["p"]),
        (None, 2, 2.0, None),
        ("a", 1, 1.0, ["p"]),
    ]
    assert [row["at"].microsecond for row in rows] == [1000, 2000, 1000]
    assert {row["_error"] for row in rows} == {None}


def test_a_missing_column_is_null_and_an_empty_message_nothing():
    rows = decoded(ipc(pa.record_batch({"n": [5]})), ipc(pa.record_batch({"n": pa.array([], pa.int32())})))
    assert [(row["name"], row["n"], row["_error"]) for row in rows] == [(None, 5, None)]


def test_one_row_that_does_not_fit_leaves_the_others():
    rows = decoded(ipc(pa.record_batch({"n": [1, 2, 2**40, 4, 2**50], "name": list("abcde")})))
    assert [row["n"] for row in rows] == [1, 2, None, 4, None]
    bad = rows[2]
    assert bad["_error"].startswith("message 1: column 'n' is not int32")
    assert bad["_raw"] == '{"n": 1099511627776, "name": "c"}'


@pytest.mark.parametrize(
    ("column", "values"),
    [("x", ["1.5"]), ("name", [5]), ("at", [5]), ("tags", ["a"]), ("tags", [[1]]), ("n", [{"a": 1}]), ("n", [True])],
)
def test_text_is_never_a_number_nor_a_number_text(column, values):
    (row,) = decoded(ipc(pa.record_batch({column: values})))
    assert row[column] is None
    assert row["_error"].startswith(f"message 1: column '{column}' is ")


def test_what_is_no_arrow_stream_is_one_dead_row():
    good = ipc(pa.record_batch({"n": [1]}))
    rows = decoded(b"", b"hello", good, good[:-30], good[:40], b"\xff" * 64)
    assert [row["n"] for row in rows if row["_error"] is None] == [1] * sum(row["_error"] is None for row in rows)
    dead = [row for row in rows if row["_error"]]
    assert {row["_error"].split(" is not an Arrow stream")[0] for row in dead} >= {
        "message 1",
        "message 2",
        "message 6",
    }
    assert dead[1]["_raw"] == "5 bytes: 68 65 6c 6c 6f"


def test_random_damage_never_raises():
    import random

    chance = random.Random(3)
    good = bytearray(ipc(pa.record_batch({"n": list(range(50)), "name": [str(n) for n in range(50)]})))
    for _ in range(300):
        damaged = bytearray(good)
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        for row in decoded(bytes(damaged[: chance.randint(1, len(damaged))])):
            assert set(row) == set(SCHEMA.names)


def test_json_comes_as_messages_or_lines():
    messages = [
        PayloadMessage(4, b'{"a": 1}\n\n{"a": 2}\r\n'),
        PayloadMessage(5, "å\n".encode()),
        PayloadMessage(6, b""),
    ]
    whole = decode_text(messages, lines=False).column("value").to_pylist()
    assert whole == ['{"a": 1}\n\n{"a": 2}\r\n', "å\n", ""]
    assert decode_text(messages, lines=True).column("value").to_pylist() == ['{"a": 1}', '{"a": 2}\r', "å"]
    mixed = decode_text([*messages, PayloadMessage(7, b"ok\n\xffbad")], lines=True).to_pylist()
    assert mixed[-2:] == [
        {"value": "ok", "_error": None},
        {"value": "\ufffdbad", "_error": "message 7 is not UTF-8"},
    ]
    assert decode_text([], lines=True).num_rows == 0
