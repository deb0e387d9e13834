"""The live terminal view of a deployment: from 80 by 24 up, and as plain lines where there is no terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headgate.cli.quantities import milliseconds
from headgate.cli.screen import LEAST_HEIGHT, LEAST_WIDTH, Screen
from headgate.cli.trends import Trends

_LINE_EVERY_S = 5.0


class View:
    """Shows a status document, again and again."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._began = time.monotonic()
        self._last_line = self._told_s = 0.0
        self._message = "starting"
        self._trends = Trends()
        self._shown: tuple[dict[str, Any], float] | None = None
        self._live: Live | None = None
        if console.is_terminal:  # drawn anew at each refresh, so that it follows the size of the terminal
            self._live = Live(console=console, get_renderable=self._screen, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def tell(self, message: str) -> None:
        """Say what is waited for: alone before there is a status, else below it; nothing takes it away again."""
        news, self._message = message != self._message, message
        quiet_s = time.monotonic() - self._told_s
        if self._live is None and message and news and (self._shown is None or quiet_s >= _LINE_EVERY_S):
            self._told_s = time.monotonic()
            self._console.print(f"[{self._elapsed()}] {message}", markup=False, highlight=False)

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began:5.1f} s"

    def _screen(self) -> RenderableType:
        if self._shown is not None:
            return self.render(*self._shown)
        return Text(f"{self._title}: {self._message} ...", style="bold")

    def show(self, status: dict[str, Any], share: float) -> None:
        """Show a status; `share` of the expected rows are in."""
        self._trends.add(status)
        if self._shown is None:
            self._message = ""
        self._shown = (status, share)
        if self._live is None and time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            total = _totals(status)
            line = (
                f"[{self._elapsed()}] {share:4.0%} rows in {total['rows_in']:,}, matched {total['matched']:,}, "
                f"delivered {total['delivered']:,}, in flight {total['in_flight']:,}, "
                f"links {total['bytes'] / 1e6:.2f} MB, ledger difference {total['difference']}"
            )
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def render(self, status: dict[str, Any], share: float) -> RenderableType:
        """The screen: at most one line less than the terminal has."""
        total = _totals(status)
        width, height = self._console.size
        head = Table.grid(expand=True)
        head.add_row(Text(self._title, style="bold"), Text(f"{share:4.0%}", justify="right"))
        bar = Table.grid()
        bar.add_row(ProgressBar(total=1.0, completed=share, width=width - 2))
        ok = total["difference"] == 0
        terms = (
            f"matched {total['matched']:,} = delivered {total['delivered']:,} + reduced {total['reduced']:,} + "
            f"expired {total['expired']:,} + in flight {total['in_flight']:,}"
        )
        difference = (str(total["difference"]), "bold green" if ok else "bold red")
        foot = [Text(terms), Text.assemble("ledger difference ", difference)]
        foot += [Text(self._message, style="bold yellow")] if self._message else []
        below = -(-len(terms) // (width - 10)) + -(-len(self._message) // (width - 10))
        if width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
            lines = height - 6 - below  # title, bar, two empty lines, the ledger's second line, the cursor
            return Group(head, bar, Text(""), Screen(width, lines).render(status, self._trends), Text(""), *foot)
        streams, links = self._streams(status), self._middle(status)
        most = height - 5 - below - streams.row_count - 1 - links.row_count - 1
        return Group(head, bar, streams, links, self._subscribers(status, max(most, 1)), *foot)

    def _streams(self, status: dict[str, Any]) -> Table:
        table = _table("stream", "rows in", "dead", "shed", "rows/s", "batch ms")
        for name, each in status["streams"].items():
            rate = _rounded(self._trends.latest("in", name))
            batch = each["job"].get("batch_s")
            shown = "-" if batch is None else f"{1000 * batch:,.0f}"
            table.add_row(name, f"{each['rows_in']:,}", str(each["dead"]), str(each["shed"]), rate, shown)
        return table

    def _middle(self, status: dict[str, Any]) -> Table:
        """The busiest links, in two columns."""
        links = sorted(status["links"].items(), key=lambda item: -item[1]["bytes"])[:8]
        cells = [
            f"{name:<15}{each['bytes'] / 1e3:>7,.0f} kB{_rounded(self._flow(name, each)):>5} kb/s"
            for name, each in links
        ]
        table = _table("busiest links", "")
        table.columns[1].justify = "left"
        for one, other in zip(cells[::2], [*cells[1::2], ""], strict=False):
            table.add_row(one, other)
        return table

    def _flow(self, link: str, each: dict[str, Any]) -> float | None:
        """What a link carries now of all streams, in kb/s."""
        rates = [self._trends.latest("link", stream, *link.split("->", 1)) for stream in each["stream_bytes"]]
        known = [rate for rate in rates if rate is not None]
        return sum(known) * 8 / 1e3 if known else None

    def _subscribers(self, status: dict[str, Any], most: int) -> Table:
        table = _table("subscriber", "site", "deliv'd", "reduced", "flight", "p50 ms", "p99 ms")
        known = [item for item in status["subscriptions"].items() if item[1].get("commit_delay_ms")]
        known.sort(key=lambda item: -(item[1]["commit_delay_ms"]["p99"] or 0))
        for name, each in known[:most]:
            delay = each["commit_delay_ms"]
            table.add_row(
                name[:22], each["site"], f"{each['delivered']:,}", f"{each['reduced']:,}", f"{each['in_flight']:,}",
                milliseconds(delay["p50"]), milliseconds(delay["p99"]),
            )  # fmt: skip
        return table


def _rounded(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold cyan", padding=(0, 1), expand=False)
    table.add_column(first, min_width=16, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _totals(status: dict[str, Any]) -> dict[str, int]:
    subscriptions = status["subscriptions"].values()
    terms = ("matched", "delivered", "reduced", "expired", "in_flight")
    return {
        **{term: sum(each[term] for each in subscriptions) for term in terms},
        "rows_in": sum(each["rows_in"] for each in status["streams"].values()),
        "bytes": sum(each["bytes"] for each in status["links"].values()),
        "difference": sum(abs(each["difference"]) for each in (*status["streams"].values(), *subscriptions)),
    }
