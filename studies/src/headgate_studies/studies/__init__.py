"""Studies: experiments declared as parameters, seeds and a pure function of one row, run on Spark, drawn and judged.

Each study is a module with a `STUDY`. May import everything except `cli`, `service` and `testing`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.errors import nearest

if TYPE_CHECKING:
    from headgate_studies.studies.study import Study


@dataclass(frozen=True, slots=True)
class Registered:
    """A study by the module that declares it; imported only when it is run."""

    module: str
    about: str


STUDIES: Mapping[str, Registered] = {
    "microbatch-floor": Registered(
        "headgate_studies.studies.microbatch_floor", "what a Spark micro-batch costs; runs alone"
    ),
    "filter-burst": Registered(
        "headgate_studies.studies.filter_burst", "methods of control under a burst (filter QoS 5)"
    ),
    "pack-queue": Registered(
        "headgate_studies.studies.pack_queue", "a policy against drop-tail on a slow link (PACK 5.1)"
    ),
    "pack-locator": Registered("headgate_studies.studies.pack_locator", "a slow consumer under six levels (PACK 5.2)"),
    "pack-queue-live": Registered(
        "headgate_studies.studies.pack_queue_live", "a slow link on the running relay, drop-tail against policies"
    ),
    "silent-loss": Registered(
        "headgate_studies.studies.silent_loss", "a slow reader behind mosquitto, NATS and Headgate"
    ),
    "pack-fairness": Registered("headgate_studies.studies.pack_fairness", "crossing paths and mixed policies"),
    "grid-replication": Registered(
        "headgate_studies.studies.grid_replication", "hot spots over 16 sites, by index depth"
    ),
    "grid-weather": Registered(
        "headgate_studies.studies.grid_weather", "ten subscribers of one field at five resolutions"
    ),
    "grid-moving-hotspot": Registered(
        "headgate_studies.studies.grid_moving_hotspot", "replicas that follow a moving crowd"
    ),
    "grid-savings": Registered("headgate_studies.studies.grid_savings", "one multi-resolution stream against one each"),
    "class-list-coding": Registered(
        "headgate_studies.studies.class_list_coding", "bytes of class lists under six codings"
    ),
    "xport-convergence": Registered(
        "headgate_studies.studies.xport_convergence", "path latency from a random tree to the star"
    ),
    "xport-superfluous": Registered(
        "headgate_studies.studies.xport_superfluous", "data carried for others, and the ablations"
    ),
    "xport-adaptivity": Registered(
        "headgate_studies.studies.xport_adaptivity", "matching load appears, the tree moves away"
    ),
    "xport-constraints": Registered(
        "headgate_studies.studies.xport_constraints", "tuning under fanout and latency limits"
    ),
    "xport-traffic": Registered(
        "headgate_studies.studies.xport_traffic", "what the tuning protocol sends, by type and size"
    ),
    "xport-statistics": Registered("headgate_studies.studies.xport_statistics", "sending statistics less often"),
    "xport-modes": Registered(
        "headgate_studies.studies.xport_modes", "bottleneck or opportunistic, serial or concurrent"
    ),
    "feeds-load": Registered(
        "headgate_studies.studies.feeds_load", "polling feeds once for everybody: requests and staleness"
    ),
    "xport-scope": Registered("headgate_studies.studies.xport_scope", "optimisation units of three to five levels"),
    "qasd-bandwidth": Registered(
        "headgate_studies.studies.qasd_bandwidth", "quality over bandwidth (QASD figures 4-6, 10)"
    ),
    "qasd-nodes": Registered(
        "headgate_studies.studies.qasd_nodes", "quality over the number of sites (QASD figures 7, 8)"
    ),
    "qasd-delays": Registered("headgate_studies.studies.qasd_delays", "variance of perceived delays (QASD figure 9)"),
    "qasd-filter-types": Registered(
        "headgate_studies.studies.qasd_filter_types", "kinds of filters (QASD figures 11, 12)"
    ),
    "qasd-drop-threshold": Registered(
        "headgate_studies.studies.qasd_drop_threshold", "tolerated drops (QASD figure 13)"
    ),
    "qasd-rounds": Registered("headgate_studies.studies.qasd_rounds", "rounds of assignment per join (QASD Table 3)"),
    "qasd-optimum": Registered(
        "headgate_studies.studies.qasd_optimum", "constructions and search against proven optima"
    ),
    "qasd-beyond": Registered("headgate_studies.studies.qasd_beyond", "the search against QASDG, one CPU minute"),
    "qasd-churn": Registered(
        "headgate_studies.studies.qasd_churn", "a living plan under 1,000 events against fresh plans"
    ),
    "qasd-replan": Registered(
        "headgate_studies.studies.qasd_replan", "a plan replanned on what was measured: gain and moves"
    ),
    "qasd-unknown": Registered("headgate_studies.studies.qasd_unknown", "plans from wrong or unknown bandwidths"),
}


def load(name: str) -> Study:
    """The study of that name; an unknown one is refused with the nearest valid name."""
    from headgate_studies.studies.study import Study, StudyError

    if name not in STUDIES:
        close = nearest(name, STUDIES)
        hint = f"did you mean {close!r}?" if close else "`headgate study list` lists them"
        raise StudyError(f"no study {name!r}", hint=hint)
    study = importlib.import_module(STUDIES[name].module).STUDY
    assert isinstance(study, Study)
    return study
