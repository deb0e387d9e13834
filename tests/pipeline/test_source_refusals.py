"""Sources that cannot work, each with what is said about it: `tests/data/source-refusals.txt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import HeadgateError
from headgate.model import Source, Stream
from headgate.pipeline.sources import GENERATOR_SCHEMAS, check_source

REFUSALS = [
    line.split(" -> ")
    for line in (Path(__file__).parents[1] / "data" / "source-refusals.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("written", "said"), REFUSALS)
def test_what_cannot_work_is_refused_with_what_to_do(written: str, said: str) -> None:
    form, *options = written.split(" ")
    source = Source(form, dict(option.split("=", 1) for option in options))
    with pytest.raises(HeadgateError) as error:
        check_source(Stream("s", GENERATOR_SCHEMAS["fleet"], source, "root"))
    assert str(error.value).startswith(said)
