"""How a deployment is run: where its state lies, and which parts of it run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.fabric import Fabric
from headgate.fabric.listening import Listening
from headgate.relay.output import QueueLimits
from headgate.relay.tables import Tables
from headgate.service.alerts.watch import EVERY_S
from headgate.service.machine import RESERVE_BYTES
from headgate.service.observer import WINDOW_S
from headgate.service.purging import TableRules
from headgate.service.replanning import Rules

Links = Callable[[Fabric, Tables, str], Fabric]
"""Gives a site's relay its connection: a demonstration on one host puts the delays of links in here."""


@dataclass(frozen=True)
class Settings:
    """How to run a deployment: where its state lies, and which parts run here."""

    state_dir: Path
    nats: str | None = None
    listening: Listening | None = None
    namespace: str = "hg"
    catalog: str | None = None
    master: str = "local[*]"
    job_archive: Path | None = None
    trigger_s: float = 1.0
    partitions: int | None = None
    new_lineage: bool = False
    accept_loss: bool = False
    rebuild_catalog: bool = False
    links: Links | None = None
    limits: QueueLimits = field(default_factory=QueueLimits)
    inbox_messages: int = 4096
    relays: bool = True
    relay_processes: int = 0
    """Over how many processes relays are spread; 0 is this process."""
    job: bool = True
    replan: Rules = field(default_factory=Rules)
    settle_s: float = 10.0
    tables: TableRules = field(default_factory=TableRules)
    window_s: float = WINDOW_S
    spark_options: Mapping[str, str] = field(default_factory=dict)
    job_environment: Callable[[int], Mapping[str, str]] | None = None
    nats_options: Mapping[str, Any] = field(default_factory=dict)
    log_level: str = "warning"
    log_format: str = "text"
    disk_reserve_bytes: int = RESERVE_BYTES
    alert_every_s: float = EVERY_S
    http: bool = False
    http_address: str | None = None
    """Where to serve the HTTP API; None is the usual port of loopback, or any where that is taken."""
    http_tls: tuple[str, str] | None = None
    """The files of a certificate and its key, for serving it by TLS."""
    http_tls_ca: str | None = None
    """The file of the authority that has signed the certificates of those who may connect."""

    @property
    def checkpoints(self) -> Path:
        """Where the Spark job keeps its checkpoints."""
        return self.state_dir / "checkpoints"

    @property
    def catalog_place(self) -> str:
        """The catalog's database, as a URL."""
        return self.catalog or f"sqlite:///{self.state_dir.absolute() / 'catalog.db'}"
