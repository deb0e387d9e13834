"""What a running deployment measured, as a document that the tuner reads: links, sites and sizes.

`links` is a list of `{between: [oslo, paris], latency_s: 0.03, bandwidth_bytes_per_s: 1e6, loss: 0}` (`from: oslo,
to: paris` for one direction only), `sites` maps a site to values of node metrics (`relay_cpu`, `loss_rate`), and
`sizes` has the planner's measured figures (`row_bytes`, `rate_rows_per_s`, `selectivity`). Every part may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headgate.errors import HeadgateError, nearest
from headgate.planning import Sizes
from headgate.tuning.language.vocabulary import NODE_METRICS
from headgate.tuning.scene import BYTES, ROWS, MeasuredScene

_LINKS = {"latency_s": "link_latency", "bandwidth_bytes_per_s": "link_bandwidth", "loss": "link_loss"}


class MeasurementError(HeadgateError):
    """A document of measurements that cannot be read."""


def read_measured(document: Mapping[str, Any], sites: Collection[str]) -> tuple[MeasuredScene, Sizes]:
    """Measurements of a deployment with these sites; unknown names are refused with the nearest valid one."""
    _known(document, ("links", "sites", "sizes"), "part")
    links: dict[str, dict[tuple[str, str], float]] = {}
    directed: dict[str, dict[tuple[str, str], float]] = {}
    for place, link in enumerate(document.get("links", ())):
        one_way = "from" in link and "to" in link
        ends = (link["from"], link["to"]) if one_way else tuple(link.get("between", ()))
        if len(ends) != 2:
            raise MeasurementError(
                f"links[{place}] is not between two sites", hint="between: [one, other], or from: one, to: other"
            )
        _known(dict.fromkeys(ends), sites, "site")
        _known({key: 0 for key in link if key not in ("between", "from", "to")}, tuple(_LINKS), "link value")
        for key, name in _LINKS.items():
            if key in link:
                value = _number(link[key], f"links[{place}].{key}")
                (directed if one_way else links).setdefault(name, {})[ends[0], ends[1]] = value
    values: dict[str, dict[str, float]] = {}
    for site, found in dict(document.get("sites", {})).items():
        _known({site: 0}, sites, "site")
        _known(found, tuple(NODE_METRICS), "site value")
        for name, value in found.items():
            values.setdefault(name, {})[site] = _number(value, f"sites.{site}.{name}")
    sizes = Sizes.of(document.get("sizes"))
    rates = {**dict.fromkeys(sizes.rate_rows_per_s, ROWS), **dict.fromkeys(sizes.row_bytes, BYTES)}
    return MeasuredScene(links, directed, values, rates), sizes


def from_status(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    declared_s: Callable[[str, str], float] | None = None,
) -> dict[str, Any]:
    """Measurements from two status documents: rates of streams, selectivities, link latencies, loss, relay CPU.

    What did not happen between them is left out: a stream without rows, a subscription of such a stream, a site that
    routed no block, a link that carries nothing. `declared_s` gives the delay that the deployment file states for a
    pair of sites; see `_latencies`. Loss is the part of the rows owed over a link that its sender gave up.
    """
    elapsed_s = (after["time_ms"] - before["time_ms"]) / 1000
    rates: dict[str, float] = {}
    selectivity: dict[str, float] = {}
    evaluated: dict[str, int] = {}
    for name, stream in after["streams"].items():
        earlier = before["streams"].get(name, {})
        rows = stream["rows_in"] - earlier.get("rows_in", 0)
        evaluated[name] = stream["evaluated"] - earlier.get("evaluated", 0)
        if elapsed_s > 0 and rows > 0:
            rates[name] = rows / elapsed_s
    for name, line in after["subscriptions"].items():
        matched = line["matched"] - before["subscriptions"].get(name, {}).get("matched", 0)
        if line["site"] is not None and evaluated.get(line["stream"], 0) > 0:
            selectivity[name] = min(1.0, max(0.0, matched / evaluated[line["stream"]]))
    owed = _owed(before["links"], after["links"])
    return {
        "links": [*_latencies(after["links"], declared_s), *_losses(owed)],
        "sites": _merged(_relay_cpu(before["sites"], after["sites"]), _loss_rates(owed)),
        "sizes": {"rate_rows_per_s": rates, "selectivity": selectivity},
    }


def _latencies(links: Mapping[str, Any], declared_s: Callable[[str, str], float] | None) -> list[dict[str, Any]]:
    """Measured latencies of the links in use, less what all of them have above their declared delays.

    That common part is the handling by logs and relays, which a link that nobody uses yet would have too: without it
    measured and declared delays compare. A link in both directions counts with the smaller value.
    """
    found: dict[tuple[str, str], float] = {}
    for name, link in links.items():
        one, other = sorted(name.split("->"))
        if link.get("latency_s") is not None:
            found[one, other] = min(link["latency_s"], found.get((one, other), math.inf))
    above = [value - declared_s(*ends) for ends, value in found.items()] if declared_s is not None else []
    common = max(0.0, min(above, default=0.0))
    return [{"between": list(ends), "latency_s": max(0.0, value - common)} for ends, value in sorted(found.items())]


def _relay_cpu(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """CPU seconds per block of every site that routed blocks between two looks; a restarted relay counts afresh."""
    found: dict[str, dict[str, float]] = {}
    for name, site in after.items():
        earlier = before.get(name, {})
        fresh = site["blocks"] < earlier.get("blocks", 0)
        blocks = site["blocks"] - (0 if fresh else earlier.get("blocks", 0))
        if blocks > 0:
            found[name] = {"relay_cpu": (site["cpu_s"] - (0.0 if fresh else earlier.get("cpu_s", 0.0))) / blocks}
    return found


def _owed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[tuple[str, str], tuple[int, int]]:
    """Rows owed and rows given up by sender and receiver between two looks; a restarted relay counts afresh."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for name, link in after.items():
        earlier = before.get(name, {})
        fresh = link["owed"] < earlier.get("owed", 0) or link["reduced"] < earlier.get("reduced", 0)
        owed, given_up = (link[key] - (0 if fresh else earlier.get(key, 0)) for key in ("owed", "reduced"))
        if owed > 0:
            sender, receiver = name.split("->")
            found[sender, receiver] = owed, min(owed, given_up)
    return found


def _losses(owed: Mapping[tuple[str, str], tuple[int, int]]) -> list[dict[str, Any]]:
    return [
        {"from": sender, "to": receiver, "loss": given_up / rows}
        for (sender, receiver), (rows, given_up) in sorted(owed.items())
    ]


def _loss_rates(owed: Mapping[tuple[str, str], tuple[int, int]]) -> dict[str, dict[str, float]]:
    """The part that a site gave up of all that it owed its children."""
    totals: dict[str, tuple[int, int]] = {}
    for (sender, _), (rows, given_up) in owed.items():
        before = totals.get(sender, (0, 0))
        totals[sender] = before[0] + rows, before[1] + given_up
    return {site: {"loss_rate": given_up / rows} for site, (rows, given_up) in totals.items()}


def _merged(one: Mapping[str, dict[str, float]], other: Mapping[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {site: {**one.get(site, {}), **other.get(site, {})} for site in {**one, **other}}


def _known(found: Mapping[str, Any], known: Collection[str], what: str) -> None:
    for name in found:
        if name not in known:
            close = nearest(str(name), known)
            raise MeasurementError(
                f"unknown {what} {name!r}", hint=f"did you mean {close!r}?" if close else "known: " + ", ".join(known)
            )


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise MeasurementError(f"{where} is {value!r}", hint="a number of at least 0")
    return float(value)
