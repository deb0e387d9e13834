"""The charts' common look, and saving them so that the same results give the same bytes.

Matplotlib is used through its figures only, never through `pyplot`, so that nothing global is left behind.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: Sequence[str] = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""

_METADATA: Final = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_TAG: Final = re.compile(r"<[^>]*>")
_LONG: Final = re.compile(r"-?\d+\.\d{3,}")

MARKERS: Sequence[str] = ("o", "s", "^", "D", "v", "P", "X")

STYLE: Mapping[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "savefig.bbox": None,
    "svg.fonttype": "none",
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Matplotlib with the common look; the runner draws every chart in it."""
    import matplotlib as mpl

    with mpl.rc_context(dict(STYLE)):
        yield


def panels(columns: int = 1, rows: int = 1, *, width: float = 6.4, height: float = 3.9) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels of that size in inches, and its axes row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        return figure, list(np.ravel(figure.subplots(rows, columns, squeeze=False)))


def draw_band(axes: Axes, frame: pd.DataFrame, x: str, label: str, number: int = 0, **options: Any) -> None:
    """A line through the means of `intervals.band` with its interval shaded."""
    colour = COLOURS[number % len(COLOURS)]
    marker = MARKERS[number % len(MARKERS)]
    axes.plot(frame[x], frame["mean"], color=colour, marker=marker, label=label, **options)
    axes.fill_between(frame[x], frame["low"], frame["high"], color=colour, alpha=0.18, linewidth=0)


def draw_bars(axes: Axes, names: Sequence[str], heights: ArrayLike, errors: ArrayLike | None = None) -> None:
    """One bar a name, each with its value above it and, where given, half its interval as an error bar."""
    values = np.asarray(heights, dtype=np.float64)
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(names))]
    axes.bar(range(len(names)), values, yerr=errors, color=colours, width=0.66, capsize=3)
    for place, value in enumerate(values):
        shown = f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"
        axes.annotate(shown, (place, value), (0, 3), textcoords="offset points", ha="center")
    axes.set_xticks(range(len(names)), list(names))
    axes.grid(visible=False, axis="x")


def save(figure: Figure, directory: Path, name: str = "chart") -> None:
    """Write NAME.svg without dates, random identifiers or digits that nobody sees."""
    import matplotlib as mpl

    directory.mkdir(parents=True, exist_ok=True)
    drawn = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    (directory / f"{name}.svg").write_text(compact_svg(drawn.getvalue()), encoding="utf-8")


def compact_svg(text: str) -> str:
    r"""The same picture in fewer bytes: places to a hundredth of a point, no indentation, no description of itself.

    What is written between tags, such as the labels of an axis, stays as it is.

    >>> compact_svg('<g>\n  <text x="1.23456" y="7">0.001234</text>\n</g>\n')
    '<g>\n<text x="1.23" y="7">0.001234</text>\n</g>\n'
    """
    text = _METADATA.sub("", text)
    text = _TAG.sub(lambda tag: " ".join(_LONG.sub(_rounded, tag[0]).split()), text)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip()) + "\n"


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
