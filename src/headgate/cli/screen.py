"""The live view on a large terminal: delivery trees with their flow on the left, streams and subscribers on the right.

Everything is cut to the height and the width that there are, and what is there is used: more subscribers are listed and
sparklines grow longer on a larger screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate.cli.quantities import milliseconds
from headgate.cli.trends import Trends, tree_of

LEAST_WIDTH: Final = 110
LEAST_HEIGHT: Final = 34
_SITE: Final = 20
_GAP: Final = 3


@dataclass(frozen=True, slots=True)
class Screen:
    """What fits: `width` by `height` characters for everything between the title and the ledger's line."""

    width: int
    height: int

    def render(self, status: dict[str, Any], trends: Trends) -> RenderableType:
        """The two columns."""
        left = min(64, int(0.42 * self.width))
        right = self.width - left - _GAP
        trees = self._trees(status, trends, left)
        rest = self.height - len(trees)
        sites = self._sites(status, trends, left, rest - 2) if rest >= 4 else []
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        grid.add_column(width=left, no_wrap=True)
        grid.add_column(width=right, no_wrap=True)
        streams = self._streams(status, trends, right)
        people = self._subscribers(status, trends, right, self.height - len(status["streams"]) - 3)
        grid.add_row(Group(*trees[: self.height], *sites), Group(streams, Text(""), people))
        return grid

    def _trees(self, status: dict[str, Any], trends: Trends, width: int) -> list[Text]:
        """Each stream's tree: what a link carries, its latency, and its course."""
        lines = []
        for name, each in status["streams"].items():
            rate = trends.latest("in", name)
            shown = "" if rate is None else f"{rate:,.0f} rows/s"
            line = Text.assemble((f"{name} from {each['root']}".ljust(_SITE + 9), "bold cyan"), f"{shown:>13} ")
            lines.append(self._with_course(line, trends, width, "in", name))
            for lead, site, parent in tree_of(status, trends, name):
                link = status["links"][f"{parent}->{site}"]
                flow = trends.latest("link", name, parent, site)
                rate_text = "-" if flow is None else f"{flow * 8 / 1e3:,.0f} kb/s"
                latency = "" if link["latency_s"] is None else f"{1e3 * link['latency_s']:,.0f} ms"
                line = Text.assemble((lead, "dim"), f"{site:<{_SITE - len(lead)}}{rate_text:>12}{latency:>10} ")
                lines.append(self._with_course(line, trends, width, "link", name, parent, site))
        return lines

    def _with_course(self, line: Text, trends: Trends, width: int, *key: str) -> Text:
        line.append(trends.line(width - len(line), *key), style="green")
        return line

    def _sites(self, status: dict[str, Any], trends: Trends, width: int, most: int) -> list[RenderableType]:
        """What the busiest sites send, and what waits there."""
        table = _table("site", "sends", "queued rows", "")
        busiest = sorted(status["sites"].items(), key=lambda item: -item[1]["upload_bytes"])[: max(most, 0)]
        for name, each in busiest:
            sends = trends.latest("up", name)
            shown = "-" if sends is None else f"{sends * 8 / 1e3:,.0f} kb/s"
            course = Text(trends.line(width - 44, "up", name), style="green")
            table.add_row(name, shown, f"{each['queued_rows']:,}", course)
        return [Text(""), table]

    def _streams(self, status: dict[str, Any], trends: Trends, width: int) -> Table:
        table = _table("stream", "rows in", "dead", "shed", "batch ms", "delay ms", "")
        for name, each in status["streams"].items():
            batch_s = each["job"].get("batch_s")
            delay_ms, course = trends.latest("delay", name), trends.line(width - 62, "delay", name)
            table.add_row(
                name, f"{each['rows_in']:,}", f"{each['dead']:,}", f"{each['shed']:,}",
                "-" if batch_s is None else f"{1000 * batch_s:,.0f}",
                milliseconds(delay_ms), Text(course, style="yellow"),
            )  # fmt: skip
        return table

    def _subscribers(self, status: dict[str, Any], trends: Trends, width: int, most: int) -> Table:
        """Those with the longest delays first."""
        wide = width >= 80
        more = ("reduced", "flight") if wide else ()
        table = _table("subscriber", "site", "deliv'd", *more, "p50 ms", "p99 ms", "rows/s", "")
        known = [item for item in status["subscriptions"].items() if item[1].get("commit_delay_ms")]
        known.sort(key=lambda item: -(item[1]["commit_delay_ms"]["p99"] or 0))
        for name, each in known[: max(most, 0)]:
            delay, got = each["commit_delay_ms"], trends.latest("got", name)
            course = Text(trends.line(width - (80 if wide else 62), "got", name), style="green")
            table.add_row(
                name[:20], each["site"] or "-", f"{each['delivered']:,}",
                *((f"{each['reduced']:,}", f"{each['in_flight']:,}") if wide else ()),
                milliseconds(delay["p50"]), milliseconds(delay["p99"]), "-" if got is None else f"{got:,.0f}", course,
            )  # fmt: skip
        return table


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold cyan", padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True, min_width=10)
    for column in columns:
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    return table
