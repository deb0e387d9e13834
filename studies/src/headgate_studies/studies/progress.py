"""A progress bar on a terminal, a line at every tenth in a log file."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class ProgressBar:
    """Shows how many of `total` are done. Writes to the standard error stream, so that results stay alone."""

    def __init__(self, title: str, total: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._title = title
        self._total = total
        self._tenth = 0
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._task = self._bar.add_task(title, total=total)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int) -> None:
        """Say how many are done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)
            return
        tenth = 10 * done // self._total if self._total else 10
        if tenth > self._tenth:
            self._tenth = tenth
            self._console.print(f"{self._title}: {done}/{self._total}", highlight=False)
