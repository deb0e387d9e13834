"""The optimisation protocol (XPORT, section 4.2): every site runs the same I/O-free core, in virtual time here.

A site knows itself, its parent, its children and what messages told it; it never reads another site. `messages` is
what goes over the wire with its size, `site` decides, `network` delivers with delay and loss and counts, `simulation`
starts sites, lets them join, leave and crash, and reads results. `streams` runs several trees over the same sites. The
same core moves onto live sites.
"""

from headgate.tuning.protocol.network import Network, TrafficCounts
from headgate.tuning.protocol.settings import TuningSettings
from headgate.tuning.protocol.simulation import TuningSimulation
from headgate.tuning.protocol.site import SiteAgent
from headgate.tuning.protocol.streams import StreamSimulation

__all__ = ["Network", "SiteAgent", "StreamSimulation", "TrafficCounts", "TuningSettings", "TuningSimulation"]
