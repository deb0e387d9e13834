"""Serving a gridded stream among sites: routing, replication of loaded regions, retreat. No I/O, no clock."""

from headgate.grid.serving.holdings import Budget, Holdings
from headgate.grid.serving.messages import Demand, Parts
from headgate.grid.serving.overlay import ServingOverlay
from headgate.grid.serving.partition import Partition
from headgate.grid.serving.placement import Placement
from headgate.grid.serving.site import SiteCore

__all__ = ["Budget", "Demand", "Holdings", "Partition", "Parts", "Placement", "ServingOverlay", "SiteCore"]
