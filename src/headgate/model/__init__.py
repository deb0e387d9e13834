"""Frozen values that every other package speaks in: streams, sites, links, subscriptions, plans, deployments.

Nothing here reads a file, a clock or a socket, and nothing is imported from the rest of Headgate except `errors`.
"""

from headgate.model.deployment import Deployment, NatsPlace, RequestLimits
from headgate.model.grant import EVERYTHING, NOTHING, Grant, Narrowed
from headgate.model.group import GroupRule
from headgate.model.plan import Plan, Tree
from headgate.model.quality import PRESETS, Quality, QualityTable, parse_quality
from headgate.model.schema import Column, Schema, parse_type, type_name
from headgate.model.site import Link, LinkQueue, Links, Site
from headgate.model.spark_job import SparkJob
from headgate.model.stream import Admission, Source, Stream
from headgate.model.subscription import Stay, Subscription
from headgate.model.units import parse_bandwidth, parse_bytes, parse_duration, parse_rate

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "PRESETS",
    "Admission",
    "Column",
    "Deployment",
    "Grant",
    "GroupRule",
    "Link",
    "LinkQueue",
    "Links",
    "Narrowed",
    "NatsPlace",
    "Plan",
    "Quality",
    "QualityTable",
    "RequestLimits",
    "Schema",
    "Site",
    "Source",
    "SparkJob",
    "Stay",
    "Stream",
    "Subscription",
    "Tree",
    "parse_bandwidth",
    "parse_bytes",
    "parse_duration",
    "parse_quality",
    "parse_rate",
    "parse_type",
    "type_name",
]
