"""The live view at the sizes that terminals have: it fits, it uses the room, and it shows where the rows go."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from headgate.cli.trends import Trends, tree_of
from headgate.cli.view import View

SITES = ("oslo", "paris", "london", "madrid", "berlin", "rome", "lyon", "ship")
PARENTS = {
    "weather": {"berlin": "oslo", "london": "oslo", "paris": "london", "rome": "berlin", "madrid": "rome"},
    "fleet": {"lyon": "paris", "london": "paris", "berlin": "london", "madrid": "lyon", "ship": "london"},
    "pulse": {"paris": "london", "berlin": "london", "lyon": "paris", "rome": "berlin", "ship": "london"},
}
ROOTS = {"weather": "oslo", "fleet": "paris", "pulse": "london"}


def document(second: int) -> dict[str, Any]:
    """A status after so many seconds of even flow."""
    links: dict[str, Any] = {}
    for stream, parents in PARENTS.items():
        for child, parent in parents.items():
            link = links.setdefault(
                f"{parent}->{child}", {"bytes": 0, "streams": [], "stream_bytes": {}, "latency_s": 0.021}
            )
            link["bytes"] += 5_000 * second
            link["streams"].append(stream)
            link["stream_bytes"][stream] = 5_000 * second
    return {
        "time_ms": 1000 * second,
        "streams": {
            name: {
                "root": root, "rows_in": 400 * second, "dead": 0, "shed": 0, "difference": 0, "job": {"batch_s": 0.3},
            }
            for name, root in ROOTS.items()
        },
        "links": links,
        "sites": {name: {"upload_bytes": 9_000 * second, "queued_rows": second} for name in SITES},
        "subscriptions": {
            f"{stream}-number-{n}": {
                "stream": stream, "site": SITES[n % 8], "matched": 20_000 * second, "delivered": 20_000 * second,
                "reduced": 0, "expired": 0, "in_flight": 0, "difference": 0,
                "commit_delay_ms": {"mean": 100.0 + n, "p50": 90.0 + n, "p99": 900.0 + n},
            }
            for stream in ROOTS
            for n in range(17)
        },
    }  # fmt: skip


def screen(width: int, height: int, message: str = "") -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, force_terminal=True)
    view = View(console, "Headgate demo: 3 streams, 8 sites, 51 subscriptions")
    for second in range(1, 31):
        view._trends.add(document(second))
    view._message = message
    drawn = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    drawn.print(view.render(document(31), 0.5))
    assert isinstance(drawn.file, io.StringIO)
    return drawn.file.getvalue().splitlines()


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (120, 40), (160, 50), (240, 70)])
@pytest.mark.parametrize("message", ["", "waiting for 20 s: " + "and it is long " * 7])
def test_it_fits_and_cuts_nothing(size: tuple[int, int], message: str) -> None:
    lines = screen(*size, message)
    assert len(lines) < size[1]
    assert max(map(len, lines)) <= size[0]
    text = "\n".join(lines)
    assert "…" not in text
    assert "ledger difference 0" in text
    assert message.split() == "\n".join(lines).split("ledger difference 0", 1)[1].split()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 50)])
def test_it_uses_the_room(size: tuple[int, int]) -> None:
    lines = screen(*size)
    assert len(lines) >= size[1] - 4
    written = sum(len(line) - line.count(" ") for line in lines)
    halves = [sum(not char.isspace() for line in lines for char in line[part]) for part in
              (slice(0, size[0] // 2), slice(size[0] // 2, None))]  # fmt: skip
    assert written / (size[0] * size[1]) > 0.35
    assert min(halves) > 0.4 * max(halves), "neither half of the screen is empty"


def test_a_large_screen_shows_the_trees_with_their_flow() -> None:
    lines = screen(160, 50)
    assert any(line.startswith("weather from oslo") and "400 rows/s" in line for line in lines)
    assert any(line.startswith("│  └─ rome") and "40 kb/s" in line and "21 ms" in line for line in lines)
    assert sum("█" in line for line in lines) > 20, "the courses of rates and delays"


def test_a_site_hangs_below_the_parent_that_sends_to_it_now() -> None:
    before, after = document(1), document(2)
    after["links"]["oslo->paris"] = {
        "bytes": 9,
        "streams": ["weather"],
        "stream_bytes": {"weather": 9},
        "latency_s": None,
    }
    trends = Trends()
    trends.add(before)
    trends.add(after)
    assert ("london", "paris") in {(parent, site) for _, site, parent in tree_of(after, trends, "weather")}
    later = document(3)
    later["links"]["london->paris"]["stream_bytes"]["weather"] = 10_000  # stands still
    later["links"]["oslo->paris"] = {"bytes": 0, "stream_bytes": {"weather": 500_000}, "latency_s": None}
    for _ in range(4):
        later["time_ms"] += 1000
        later["links"]["oslo->paris"]["stream_bytes"]["weather"] += 50_000
        trends.add(later)
    assert ("oslo", "paris") in {(parent, site) for _, site, parent in tree_of(later, trends, "weather")}
