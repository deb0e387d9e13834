"""A good file damaged at random is read or refused with places, whatever the damage."""

import random
from pathlib import Path

import pytest

from headgate.catalog import DeploymentError, parse_deployment

TEXT = (Path(__file__).parents[1] / "data" / "headgate.yaml").read_text()
POLICY = "    policy: {levels: [{delta: {attribute: wind, change: 2}}, {every: 3}], digest: [{max: wind}]}\n"
WHOLE = (
    TEXT.replace("    weight: 2\n", "    weight: 2\n    region: {box: {x: [0, 10], y: [0, 10]}}\n" + POLICY)
    + "plan: {weather: {paris: oslo}, ticks: {lyon: paris}}\n"
    + "objective: minimise average(path_latency)\n"
    + "constraints: [max(path_latency) <= 0.2 s]\n"
)
PIECES = (
    "null",
    "[]",
    "{}",
    "-1",
    "1e999",
    "''",
    "true",
    "x",
    "[[1, 2]]",
    "{a: {b: c}}",
    "*x",
    "&x 1",
    "!!t",
    "9" * 400,
    "é",
)


def damaged(seed: int) -> str:
    """The file with a few words replaced, lines dropped, doubled or moved in or out."""
    draw = random.Random(seed)
    lines = WHOLE.splitlines()
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(lines))
        match draw.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[draw.randrange(len(lines))])
            case 2:
                lines[at] = draw.choice(["  ", ""]) + lines[at].removeprefix("  ")
            case 3:
                key, colon, _value = lines[at].partition(":")
                lines[at] = f"{key}{colon} {draw.choice(PIECES)}"
            case _:
                words = lines[at].split(" ")
                words[draw.randrange(len(words))] = draw.choice(PIECES)
                lines[at] = " ".join(words)
    return "\n".join(lines)


def test_the_whole_file_is_good() -> None:
    assert parse_deployment(WHOLE, "f").subscriptions["storms"].policy is not None


@pytest.mark.parametrize("start", range(0, 240, 40))
def test_damage_is_reported_and_never_a_crash(start: int) -> None:
    for seed in range(start, start + 40):
        text = damaged(seed)
        try:
            parse_deployment(text, "f")
            found = ()
        except DeploymentError as error:
            found = error.problems
        lines = text.count("\n") + 2
        assert all(1 <= problem.line <= lines and problem.message for problem in found), seed
