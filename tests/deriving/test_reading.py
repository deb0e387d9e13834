"""Texts of derived columns, and what is wrong with those that are refused."""

import pytest

from headgate.catalog import DeploymentError, parse_deployment
from headgate.catalog.file_writing import stream_document
from headgate.deriving import DeriveError, derivation_of
from headgate.deriving.reading import read_column
from headgate.model import Schema, type_name

SCHEMA = Schema.of(
    {"car": "string", "at": "timestamp", "v": "double", "n": "int", "day": "date", "tags": "array<string>"}
)
TYPES = {
    "previous(V)": "double",
    "previous(tags)": "array<string>",
    "changed(day)": "boolean",
    "count() over last 5 min": "bigint",
    "count(*) over last 5min": "bigint",
    "sum(n) over last 1 h": "bigint",
    "sum(v) over last 1 h": "double",
    "avg(n) over last 250 ms": "double",
    "min(day) over last 1 d": "date",
    "MAX(`at`) OVER LAST 30 s BY car, n": "timestamp",
    "(v > 80 and n in (1, 2)) then (v < 10) within 30 s": "boolean",
    "v > 80 then v < 10 within 30 s by car": "boolean",
}
REFUSED = {
    "": ("a derived column is a text", None),
    "previously(v)": ("'previously' begins no derived column", "did you mean 'previous'?"),
    "previous(w)": ("unknown column 'w'", None),
    "previous(v": ("a bracket is not closed", None),
    "previous(v + 1)": ("previous takes one column", "as in `previous(car)`"),
    "previous(v) over last 5 min": ("'over last 5 min' is left over", None),
    "changed(tags)": ("column 'tags' of type array<string> cannot be compared", "name another column"),
    "avg(car) over last 5 min": ("column 'car' of type string is no number to take the mean of", "name another column"),
    "avg(v)": ("avg is over a time", "as in `avg(v) over last 5 min`"),
    "avg(v) over last 5": ("'5' has no unit", None),
    "avg(v) over last 5 minutes": ("unknown unit 'minutes' in '5 minutes'", None),
    "avg(v) over last 0 s": ("a time of nothing holds no rows", "as in `5 min`"),
    "(v > 80) then (v < 10)": ("`then` needs a time", "as in `(A) then (B) within 30 s`"),
    "(v > 80) then (w < 10) within 30 s": ("unknown column 'w'", None),
    "(v > $x) then (v < 10) within 30 s": ("unknown context value $x", None),
    "previous(v) by": ("`by` is followed by names of columns", "as in `by vehicle`"),
    "previous(v) by tags": ("column 'tags' of type array<string> cannot be a key", "name another column"),
    "previous('v": ("a quote is not closed, or a literal is malformed", "close it"),
}


@pytest.mark.parametrize(("text", "kind"), TYPES.items())
def test_the_type_of_a_column_follows_from_its_text(text, kind):
    column, by = read_column("x", text, SCHEMA, event_time="at")
    assert type_name(column.type) == kind
    assert bool(by) == (" by " in text.lower())


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_a_wrong_text_is_refused_with_what_to_write(text, said):
    with pytest.raises(DeriveError) as caught:
        read_column("x", text, SCHEMA, event_time="at")
    assert caught.value.where == "derive.x"
    assert caught.value.message == said[0]
    assert said[1] is None or caught.value.hint == said[1]


FILE = """\
sites: {a: }
streams:
  s:
    root: a
    schema: {car: string, at: timestamp, v: double}
    source: {format: json, path: /in}
    key: car
    event_time: at
    derive:
      before: previous(v)
      mean: avg(v) over last 5 min
subscriptions:
  fast: {site: a, stream: s, where: "v > before and mean > 3", select: [car, mean]}
"""


def test_derived_columns_are_columns_for_whoever_subscribes():
    found = parse_deployment(FILE, "f.yaml")
    stream = found.streams["s"]
    assert stream.schema.names == ("car", "at", "v", "before", "mean")
    assert stream.source_schema.names == ("car", "at", "v")
    written = stream_document(found, "s")
    assert (set(written["schema"]), written["derive"]["before"]) == ({"car", "at", "v"}, "previous(v)")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("previous(v)", "previous(w)", "f.yaml:10:24: streams.s.derive.before: unknown column 'w', at character 10"),
        ("    key: car\n", "", "streams.s.derive.before: nothing says whose earlier rows 'before' looks at"),
        ("previous(v)", "previous(v) by v", "streams.s.derive.mean: 'mean' is by car, but 'before' is by v"),
        ("    event_time: at\n", "", "streams.s.derive.mean: time is that of events, and the stream has none"),
        ("key: car", "key: before", "streams.s.derive.before: 'before' tells rows apart"),
        ("before: prev", "at: prev", "streams.s.derive.at: 'at' tells rows apart"),
        ("before: prev", "V: prev", "streams.s.derive.V: the source has a column 'V' of its own"),
        (
            "    derive:",
            "    derive_state: {keys: 0}\n    derive:",
            "streams.s.derive_state.keys: 0 is no number of keys",
        ),
        ("    derive:", "    derive_state: {late: 5}\n    derive:", "streams.s.derive_state.late: 5 has no unit"),
        ("    derive:", "    derive_state: {lat: 5 s}\n    derive:", "streams.s.derive_state: unknown key 'lat'"),
        ('where: "v > before', 'where: "v > befor', "did you mean 'before'?"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(before, after, said):
    text = FILE.replace(before, after, 1)
    with pytest.raises(DeploymentError) as caught:
        parse_deployment(text, "f.yaml")
    told = "\n".join(str(each) for each in caught.value.problems)
    assert said in told


def test_memory_is_of_use_only_for_the_same_columns():
    stream = parse_deployment(FILE, "f.yaml").streams["s"]
    other = parse_deployment(FILE.replace("5 min", "6 min"), "f.yaml").streams["s"]
    one, two = derivation_of(stream), derivation_of(other)
    assert one is not None
    assert two is not None
    assert one.fingerprint != two.fingerprint
