"""NATS as Headgate uses it: an embedded server, and logs that are appended to, read back and purged by their owner.

This is the only package that speaks to NATS. Logs, subjects and limits stand in one table (`headgate.wire.logs`); every
append that decides something is fenced by the expected last sequence of its subject.
"""

from headgate.fabric.client import LASTS, Fabric, FabricError, FencedError, LogFullError, LogInfo, Stored, fenced_size
from headgate.fabric.crew import Crew, cancel_all
from headgate.fabric.server import EmbeddedServer, find_server
from headgate.fabric.sync import SyncFabric

__all__ = [
    "LASTS",
    "Crew",
    "EmbeddedServer",
    "Fabric",
    "FabricError",
    "FencedError",
    "LogFullError",
    "LogInfo",
    "Stored",
    "SyncFabric",
    "cancel_all",
    "fenced_size",
    "find_server",
]
