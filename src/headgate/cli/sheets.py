"""Tables of figures that fit the terminal: a number is shown whole or not at all.

Where a table is too wide, columns that are 0 in every row are named under it instead of shown; what is still too wide
goes on in a second block, under the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_GAP = 2
_NOTHING = frozenset(("0", "0.0", "0.00", "-", ""))


def day_of(seconds: int | None) -> str:
    """A time in UTC as a cell shows it.

    >>> day_of(0), day_of(None)
    ('1970-01-01 00:00', '-')
    """
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


class Sheet:
    """A table with a title, one column of names and columns of figures."""

    def __init__(self, title: str, first: str, *columns: str) -> None:
        self.title = title
        self.heads = (first, *columns)
        self._rows: list[tuple[tuple[str, ...], str | None]] = []

    def add_row(self, *cells: str, style: str | None = None) -> None:
        """Add a name and its figures."""
        if len(cells) != len(self.heads):
            raise ValueError(f"{len(cells)} cells for {len(self.heads)} columns")
        self._rows.append((cells, style))

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return len(self._rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table in as many blocks as the width asks for."""
        yield Text(self.title, style="bold")
        columns = list(range(1, len(self.heads)))
        left_out: list[int] = []
        if self._width([0, *columns]) > options.max_width:
            left_out = [column for column in columns if self._is_nothing(column)]
            columns = [column for column in columns if column not in left_out]
        for block in self._blocks(columns, options.max_width):
            yield self._table(block, options.max_width)
        if left_out:
            yield Text(f"(0 everywhere: {', '.join(self.heads[column] for column in left_out)})", style="dim")

    def _is_nothing(self, column: int) -> bool:
        return all(cells[column] in _NOTHING for cells, _ in self._rows)

    def _size(self, column: int) -> int:
        return max(len(self.heads[column]), *(len(cells[column]) for cells, _ in self._rows), 1)

    def _width(self, columns: list[int]) -> int:
        return sum(map(self._size, columns)) + _GAP * (len(columns) - 1)

    def _names_width(self, width: int) -> int:
        """What the names may take: all that they need, but at most half of the line, then they are folded."""
        return min(self._size(0), max(width // 2, 1))

    def _blocks(self, columns: list[int], width: int) -> Iterator[list[int]]:
        """Columns that fit beside the names, block by block, in their order."""
        room = width - self._names_width(width)
        block: list[int] = []
        for column in columns:
            if block and sum(self._size(each) + _GAP for each in [*block, column]) > room:
                yield block
                block = []
            block.append(column)
        if block or not columns:
            yield block

    def _table(self, columns: list[int], width: int) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold cyan")
        table.add_column(self.heads[0], width=self._names_width(width), overflow="fold")
        room = width - self._names_width(width) - _GAP
        for column in columns:
            size = self._size(column)
            if size <= room:
                table.add_column(self.heads[column], justify="right", no_wrap=True, min_width=size)
            else:  # a long text alone in its block
                table.add_column(self.heads[column], width=room, overflow="fold")
        for cells, style in self._rows:
            table.add_row(*(Text(cells[each]) for each in (0, *columns)), style=style)
        return table
