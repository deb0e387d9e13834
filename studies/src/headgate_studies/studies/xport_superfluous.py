"""Superfluous data under local transformations, and which of them are needed (XPORT, figure 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.tuning.compile import compile_objective
from headgate.tuning.search import Options, Tuner
from headgate.tuning.transformations import STANDARD
from headgate_studies.studies import charts
from headgate_studies.studies.intervals import band
from headgate_studies.studies.papers import XPORT
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study
from headgate_studies.studies.xport import PROMOTIONS, all_of, carried, curve, mean_text, system

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LEFT_OUT = {
    "all": (),
    "no subtree promotion": ("subtree promotion",),
    "no subtree promotion, no swap": ("subtree promotion", "parent-child swap"),
    "no promotion at all": ("subtree promotion", "child promotion"),
    "no promotion, no swap": ("subtree promotion", "child promotion", "parent-child swap"),
}


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """Kilobytes of superfluous data per site after every step; large systems change in parallel, by promotions only."""
    sites, rules = int(parameters["sites"]), str(parameters["rules"])
    large = sites > 200
    overlay, shape = system(seed, sites, clients=5 * sites // 2)
    allowed = tuple(rule for rule in STANDARD if rule.name not in LEFT_OUT[rules])
    options = Options(transformations=PROMOTIONS if large else allowed, concurrent=large)
    tuned = Tuner(overlay, compile_objective("minimise sum(extra_incoming())"), options=options).run(shape)
    rows = curve(tuned, 1000.0 * sites, steps=len(tuned.steps), periods=tuned.periods)
    return rows if len(rows) < 200 else [*rows[:: len(rows) // 60], rows[-1]]


def _final(results: pd.DataFrame, rules: str, sites: int | None = None) -> pd.DataFrame:
    size = int(results["sites"].min()) if sites is None else sites
    shown = results[(results["rules"] == rules) & (results["sites"] == size)]
    return shown.sort_values("step").groupby("seed").last()


def _zero(results: pd.DataFrame) -> tuple[str, str]:
    return all_of(_final(results, "all")["cost"] < 1e-9, "end without any superfluous data")


def _steps(results: pd.DataFrame) -> tuple[str, str]:
    steps = _final(results, "all")["steps"]
    verdict = REPRODUCES if steps.mean() <= 13 else PARTLY if steps.mean() <= 30 else FAILS
    return f"{mean_text(steps)} transformations from a random recursive tree", verdict


def _large(results: pd.DataFrame) -> tuple[str, str]:
    most = int(results["sites"].max())
    final = _final(results, "all", most)
    text, verdict = all_of(final["cost"] < 1e-9, f"of {most:,} sites end without any")
    return f"{text}, in {final['periods'].mean():.0f} periods with {final['steps'].mean():.0f} transformations", verdict


def _without(results: pd.DataFrame, rules: str) -> tuple[str, str]:
    final = _final(results, rules)
    stuck = float((final["cost"] > 1e-9).mean())
    verdict = REPRODUCES if stuck == 1 else PARTLY if stuck > 0 else FAILS
    return f"{100 * stuck:.0f} % of the runs do not reach 0 (mean {final['cost'].mean():.2f} KB per site)", verdict


def chart(results: pd.DataFrame) -> Figure:
    """Superfluous data over steps, one line a set of rules."""
    figure, (axes,) = charts.panels()
    for number, rules in enumerate(LEFT_OUT):
        part = results[(results["rules"] == rules) & (results["sites"] == results["sites"].min())]
        if len(part):
            means = band(carried(part, ["rules"]), ["step"], "cost")
            charts.draw_band(axes, means, "step", rules, number)
    axes.set(xlabel="transformations", ylabel="superfluous KB per site", title="Who carries what only others want")
    axes.legend()
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Final superfluous kilobytes per site and steps by rules."""
    found = results[["sites", "rules"]].drop_duplicates().itertuples(index=False)
    ends = {(sites, rules): _final(results, rules, int(sites)) for sites, rules in found}
    return {
        f"{sites} sites, {rules}: final KB per site": round(float(e["cost"].mean()), 3)
        for (sites, rules), e in ends.items()
    } | {f"{sites} sites, {rules}: steps": round(float(e["steps"].mean()), 1) for (sites, rules), e in ends.items()}


STUDY = Study(
    name="xport-superfluous",
    about="Data that sites receive only to forward it, and which transformations get rid of it.",
    parameters=[*({"sites": 40, "rules": rules} for rules in LEFT_OUT), {"sites": 1000, "rules": "all"}],
    run=run,
    chart=chart,
    statements=(
        Statement("with all transformations superfluous data reaches 0 (figure 6)", _zero),
        Statement("in about 11 transformations (figure 6)", _steps),
        Statement(
            "without subtree promotion it does not converge (figure 6)", lambda r: _without(r, "no subtree promotion")
        ),
        Statement(
            "without subtree and child promotion it does not converge (ours)",
            lambda r: _without(r, "no promotion at all"),
        ),
        Statement("so it does in large systems, with changes in parallel (ours)", _large),
    ),
    summary=summary,
    seeds=20,
    most_seeds=lambda case: 1 if case["sites"] > 40 else None,
    paper=XPORT,
    notes="100 clients (2,500 at 1,000 sites) at random sites pick one of 700 feeds each by a Zipf law with skew 0.97; "
    "feeds are 27.7 KB on average. Child promotion alone does what subtree promotion does, one child at a time, so the "
    "paper's ablation only shows when both are left out. 1,000 sites use the two promotions only.",
)
