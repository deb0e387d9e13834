"""Where the figures behind an objective come from: measured in the running deployment, declared, or worked out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headgate.tuning.scene import MeasuredScene

_RATES = frozenset({"incoming_rate", "own_rate", "superfluous_data", "outgoing_rate", "extra_incoming"})
_BOUNDS: Mapping[str, str] = {
    "upload_bandwidth": "upload_bandwidth",
    "download_bandwidth": "download_bandwidth",
    "upload_excess": "upload_bandwidth",
    "download_excess": "download_bandwidth",
}
_STATES = frozenset({"own_profile", "merged_profile", "children_profile"})
_QUALITY = frozenset({"attained_quality", "granted_shortfall"})
_PLAN = frozenset({"fanout", "clients", "link_hop"})


def sources_of(metrics: Iterable[str], measured: MeasuredScene, streams: Sequence[str]) -> dict[str, str]:
    """For each metric, in a few words, what is measured of it and what is not.

    >>> sources_of(["fanout", "relay_cpu"], MeasuredScene(sites={"relay_cpu": {"oslo": 0.01}}), ["wind"])
    {'fanout': 'from the plan', 'relay_cpu': 'measured at oslo; elsewhere 0'}
    """
    return {name: _source(name, measured, streams) for name in sorted(metrics)}


def _source(name: str, measured: MeasuredScene, streams: Sequence[str]) -> str:
    if name in _PLAN:
        return "from the plan"
    if name in _RATES or name in _STATES:
        return _rates(measured, streams)
    if name in _QUALITY:
        return f"the planner's model; rates: {_rates(measured, streams)}"
    if name in _BOUNDS:
        found = _sites(measured, _BOUNDS[name], "declared")
        return found if _BOUNDS[name] == name else f"rates: {_rates(measured, streams)}; bandwidth: {found}"
    if name == "matching_cpu":
        return f"modelled; rates: {_rates(measured, streams)}"
    if name.startswith("link_"):
        return _links(measured, name)
    return _sites(measured, name, "0" if name in ("relay_cpu", "loss_rate") else "declared")


def _rates(measured: MeasuredScene, streams: Sequence[str]) -> str:
    by_kind: dict[str, list[str]] = {}
    for stream in streams:
        by_kind.setdefault(measured.rates.get(stream, "declared or assumed"), []).append(stream)
    return "; ".join(f"{kind} ({', '.join(names)})" for kind, names in by_kind.items()) or "declared"


def _sites(measured: MeasuredScene, name: str, otherwise: str) -> str:
    known = sorted(measured.sites.get(name, {}))
    if not known:
        return otherwise if otherwise != "0" else "not measured: 0"
    return f"measured at {_few(known)}; elsewhere {otherwise}"


def _links(measured: MeasuredScene, name: str) -> str:
    """Links are counted whatever their direction."""
    known = {frozenset(ends) for found in (measured.links, measured.directed) for ends in found.get(name, {})}
    if name == "link_loss":
        rest = "what their sender gives up elsewhere" if measured.sites.get("loss_rate") else "0"
        return f"measured on {_count(known)}; others {rest}" if known else f"not measured: {rest}"
    return f"measured on {_count(known)}; others declared" if known else "declared"


def _count(links: set[frozenset[str]]) -> str:
    return f"{len(links)} link" + ("s" if len(links) != 1 else "")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{len(names)} sites"
