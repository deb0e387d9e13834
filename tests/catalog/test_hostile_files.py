"""Files made to hurt are refused from their size, depth or expansion, before any of it is built."""

import pytest
import yaml

from headgate.catalog import DeploymentError, parse_deployment
from headgate.catalog.positions import MAX_BYTES, MAX_DEPTH, read_document


def refused(text: str | bytes) -> str:
    with pytest.raises(DeploymentError) as caught:
        parse_deployment(text, "f")
    return str(caught.value)


def test_huge() -> None:
    assert "more than" in refused("x" * (MAX_BYTES + 1))


def test_many_values() -> None:
    assert "more than 200000 values" in refused("[" + "1," * 250_000 + "]")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep(opening: str) -> None:
    assert f"nested more than {MAX_DEPTH} deep" in refused(opening * 100_000)


def test_aliases_that_nest() -> None:
    lines = ["a0: &a0 [1]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 60)]
    assert f"nested more than {MAX_DEPTH} deep" in refused("\n".join(lines))


@pytest.mark.parametrize("tag", ["!!python/name:os.system", "!!python/object/new:os.system", "!own", "!!binary"])
def test_tags(tag: str) -> None:
    assert "is not read here" in refused(f"streams: {tag} x")


@pytest.mark.parametrize(
    "text", ["a: 'x", "a: b: c", "%YAML 9.9\n---\na", "\x00", "a: \x07", "@", "*", "&", "{", "\ud7ff: ["]
)
def test_nonsense_is_a_problem_and_not_a_traceback(text: str) -> None:
    assert refused(text).startswith("f:")


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"a: \x80", b"\xc0\xaf", b"\xed\xa0\x80"])
def test_bytes_that_are_not_utf8(data: bytes) -> None:
    assert "is not UTF-8" in refused(data)


def test_a_byte_order_mark_is_no_harm() -> None:
    assert read_document(b"\xef\xbb\xbfa: 1", "f").value == {"a": 1}


def test_aliases_that_are_not_a_bomb_are_expanded_with_places() -> None:
    document = read_document("a: &x {k: 1}\nb: *x\n", "f")
    assert document.value == {"a": {"k": 1}, "b": {"k": 1}}
    assert document.problem(("b", "k"), "m").line == 1


def test_scalars_follow_the_core_schema_where_plain() -> None:
    text = "[1, -2.5, 1e3, true, null, ~, no, 12:30, 2024-01-01, '1', \"true\", 0x1f, .inf, 00123, 1e999]"
    assert read_document(text, "f").value == [
        1, -2.5, 1000.0, True, None, None, "no", "12:30", "2024-01-01", "1", "true", "0x1f", ".inf", 123, "1e999",
    ]  # fmt: skip


def test_it_reads_what_an_independent_reader_reads() -> None:
    text = "a: [1, 2, {b: c}]\n'd e': |\n  two\n  lines\nf: >-\n  folded\n  text\ng: {}\nh: []\n"
    assert read_document(text, "f").value == yaml.safe_load(text)
