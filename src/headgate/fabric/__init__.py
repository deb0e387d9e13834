"""NATS as Headgate uses it: an embedded server, and logs that are appended to, read back and purged by their owner.

This is the only package that speaks to NATS. Logs, subjects and limits stand in one table (`headgate.wire.logs`); every
append that decides something is fenced by the expected last sequence of its subject.
"""

from headgate.fabric.administration import LogState
from headgate.fabric.client import LASTS, Fabric
from headgate.fabric.crew import Crew, cancel_all, in_daemon
from headgate.fabric.program import find_server
from headgate.fabric.quarantine import keep_quarantine, read_quarantine, report_quarantine
from headgate.fabric.server import EmbeddedServer
from headgate.fabric.sync import SyncFabric
from headgate.protocol.port import (
    FabricError,
    FencedError,
    LogFullError,
    NoAnswerError,
    NoLogError,
    Stored,
    TooLargeError,
)

__all__ = [
    "LASTS",
    "Crew",
    "EmbeddedServer",
    "Fabric",
    "FabricError",
    "FencedError",
    "LogFullError",
    "LogState",
    "NoAnswerError",
    "NoLogError",
    "Stored",
    "SyncFabric",
    "TooLargeError",
    "cancel_all",
    "find_server",
    "in_daemon",
    "keep_quarantine",
    "read_quarantine",
    "report_quarantine",
]
