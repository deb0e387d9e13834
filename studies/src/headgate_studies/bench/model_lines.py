"""What `headgate bench model` says of one subscription at one scale: predicted, counted, and whether both agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate.model import Deployment, Plan, Subscription, parse_duration
from headgate.planning import Graph, PlanResult
from headgate.planning.measured import Measured, measured_problem
from headgate.planning.planner import result_of
from headgate.planning.search import Search
from headgate.wire.ledger import Tally

SEARCH = Search(steps=20_000)
LINGER_S = 0.2  # what outputs wait to fill a message: fifty inboxes share two cores with Spark and NATS


@dataclass(frozen=True, slots=True)
class Times:
    """How long each part takes: without limits, settling, counting, and counting at most; rows that are enough."""

    free_s: float
    settle_s: float
    seconds: float
    most_s: float
    rows: int


@dataclass(frozen=True, slots=True)
class Line:
    """One subscription at one scale: predicted as assumed, from a run without limits, under load; what happened."""

    scale: float
    subscription: str
    rows: int
    assumed: float
    before: float
    predicted: float
    drop: float
    links_s: float
    waits_s: float
    delay_s: float

    @property
    def predicted_s(self) -> float:
        """The delay of the links on the way and the waits where rows are shed."""
        return self.links_s + self.waits_s

    @property
    def off(self) -> float:
        """How far the measured drop is from the predicted one."""
        return abs(self.drop - self.predicted)

    @property
    def agrees(self) -> bool:
        """Within 0.02, or within a tenth of what was predicted."""
        return self.off <= max(0.02, 0.1 * self.predicted)


def figures(lines: list[Line], scales: list[float], rows: int) -> dict[str, Any]:
    """How many subscriptions were judged and agree, and drops and delays of each scale, weighed by rows."""
    judged = [line for line in lines if line.rows >= rows]
    found: dict[str, Any] = {
        "rows_to_be_judged": rows,
        "lines": len(lines),
        "judged": len(judged),
        "agree": sum(line.agrees for line in judged),
        "worst_off": round(max((line.off for line in judged), default=0.0), 4),
        "least_rows": min((line.rows for line in lines), default=0),
        "all_agree": bool(judged) and len(judged) == len(lines) and all(line.agrees for line in judged),
        "differ": [f"{line.subscription} at {line.scale:g}" for line in judged if not line.agrees],
    }
    for scale in scales:
        mine = [line for line in lines if line.scale == scale]
        total = max(1, sum(line.rows for line in mine))

        def mean(values: list[float], mine: list[Line] = mine, total: int = total) -> float:
            return round(sum(line.rows * value for line, value in zip(mine, values, strict=True)) / total, 4)

        found |= {
            f"scale_{scale:g}_drop_predicted": mean([line.predicted for line in mine]),
            f"scale_{scale:g}_drop_measured": mean([line.drop for line in mine]),
            f"scale_{scale:g}_drop_predicted_without_load": mean([line.before for line in mine]),
            f"scale_{scale:g}_drop_assumed": mean([line.assumed for line in mine]),
            f"scale_{scale:g}_delay_of_links_s": mean([line.links_s for line in mine]),
            f"scale_{scale:g}_delay_predicted_s": mean([line.predicted_s for line in mine]),
            f"scale_{scale:g}_delay_measured_s": mean([line.delay_s for line in mine]),
        }
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """A plan on the problem that was measured: what each subscription gets, and how long its rows wait on the way."""

    result: PlanResult
    waits_s: Mapping[tuple[str, str], float]


def judged(deployment: Deployment, class_ids: Mapping[str, int], measured: Measured, plan: Plan) -> Judged:
    """Judge a plan by what was measured."""
    graph = Graph.of(measured_problem(deployment, class_ids, measured), plan)
    shed_after_s = parse_duration(str(deployment.options["shed_after"]))
    return Judged(result_of(graph, "measured"), waits(graph, shed_after_s))


def waits(graph: Graph, shed_after_s: float) -> dict[tuple[str, str], float]:
    """Seconds that rows wait on their way to each member, by stream and site: at every hop that sheds some of them."""
    kept, found = graph.net.node["kept"], dict[tuple[str, str], float]()

    def wait(stream: str, site: str) -> float:
        if (stream, site) not in parents:
            return 0.0
        if (stream, site) not in found:
            upper = parents[stream, site]
            passed = float(kept[graph.node(stream, site)] / kept[graph.node(stream, upper)])
            found[stream, site] = wait(stream, upper) + (shed_after_s if passed < 1 - 1e-6 else 0.0)
        return found[stream, site]

    parents = graph.parents()
    return {member: wait(*member) for member in parents}


def lines_of(
    scale: float,
    identities: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
    earlier: tuple[PlanResult, PlanResult],
    under_load: Judged,
    first: Mapping[int, Tally],
    last: Mapping[int, Tally],
) -> list[Line]:
    """What each subscription was predicted (as assumed, before, under load) and what its tallies say."""
    found = []
    for name, prediction in under_load.result.subscriptions.items():
        rows, drop, delay_s = difference(first.get(identities[name]), last.get(identities[name]))
        assumed, before = (result.subscriptions[name].drop for result in earlier)
        waits_s = under_load.waits_s.get((subscriptions[name].stream, subscriptions[name].site), 0.0)
        delays = prediction.delay_s, waits_s, delay_s
        found.append(Line(scale, name, rows, assumed, before, prediction.drop, drop, *delays))
    return found


def difference(before: Tally | None, after: Tally | None) -> tuple[int, float, float]:
    """Rows owed between two tallies, the part of them that was given up, and the mean delay of the rest."""
    if after is None:
        return 0, 0.0, 0.0
    before = before or Tally(after.subscription)
    got = after.delivered - before.delivered
    lost = sum(after.reduced.values()) - sum(before.reduced.values()) + after.expired - before.expired
    count = after.commit_delay.count - before.commit_delay.count
    delay_ms = (after.commit_delay.total_ms - before.commit_delay.total_ms) / max(1, count)
    return got + lost, lost / max(1, got + lost), delay_ms / 1000


def describe(demo: Deployment, measured: Measured) -> None:
    """Print what was measured without limits."""
    for name, seen in measured.streams.items():
        columns = ", ".join(f"{column} {size:.1f}" for column, size in seen.column_bytes.items())
        print(f"{name}: {seen.rate_rows_per_s:,.0f} rows/s ({demo.streams[name].rate_rows_per_s:,.0f} declared), "
              f"{seen.row_bytes:.1f} bytes a row (base {seen.base_bytes:.1f}, {columns}), "
              f"{len(seen.classes)} sets of classes", flush=True)  # fmt: skip


def describe_load(scale: float, measured: Measured, loaded: Measured) -> None:
    """Print what became of the bytes of a row, and of the rates, under load."""
    print(f"scale {scale:g}")
    for name, seen in loaded.streams.items():
        was = measured.streams[name]
        print(f"  {name}: {seen.row_bytes:.1f} bytes a row under load, {was.row_bytes:.1f} without limits; "
              f"{seen.rate_rows_per_s:,.0f} rows/s, {was.rate_rows_per_s:,.0f} before")  # fmt: skip


def show(lines: list[Line], rows: int) -> None:
    """Print a table: drops as assumed, predicted without and with the load, and counted; delays."""
    print(f"{'scale':>5} {'subscription':20} {'rows':>9} {'assumed':>8} {'unloaded':>8} {'model':>7} {'drop':>7} "
          f"{'links':>9} {'with waits':>10} {'measured':>9}", flush=True)  # fmt: skip
    for line in lines:
        verdict = ("" if line.agrees else "  differs") + ("" if line.rows >= rows else "  (few rows)")
        print(f"{line.scale:5g} {line.subscription:20} {line.rows:9,} {line.assumed:8.3f} {line.before:8.3f} "
              f"{line.predicted:7.3f} {line.drop:7.3f} {line.links_s * 1e3:6.0f} ms {line.predicted_s * 1e3:7.0f} ms "
              f"{line.delay_s * 1e3:6.0f} ms"
              f"{verdict}", flush=True)  # fmt: skip
