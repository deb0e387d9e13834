"""The deployment file and the catalog: what a deployment is, checked to the line, and what is in force, kept in SQL.

`load_deployment` reads a file or lists everything that is wrong with it. `Catalog` keeps streams, sites, links,
subscriptions and the plan in a database, one revision a change; a `Snapshot` of a revision is what relays and Spark
workers run from. May import `model`, `filters` and the other engines, and `wire`; no network, no Spark.
"""

from headgate.catalog.database import CatalogBusyError, CatalogError
from headgate.catalog.deployment_file import load_deployment, parse_deployment
from headgate.catalog.edit import Edit
from headgate.catalog.problems import DeploymentError, FileProblem
from headgate.catalog.request import parse_subscription, parse_subscriptions
from headgate.catalog.store import Catalog

__all__ = [
    "Catalog",
    "CatalogBusyError",
    "CatalogError",
    "DeploymentError",
    "Edit",
    "FileProblem",
    "load_deployment",
    "parse_deployment",
    "parse_subscription",
    "parse_subscriptions",
]
