"""The part of the deployment file about its server: who reaches it and how, what users may ask for, whom it alerts."""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from headgate.catalog.entry import Bandwidth, DocumentEntry, Duration, Rate, Share, refusal


class TlsEntry(DocumentEntry):
    """Files in PEM for TLS."""

    cert: str | None = Field(default=None, description="The certificate of the embedded server, or our own.")
    key: str | None = Field(default=None, description="Its key.")
    ca: str | None = Field(
        default=None, description="The authority that signed a server of your own, or clients of the embedded one."
    )


class NatsEntry(DocumentEntry):
    """Where NATS is; default: an embedded server on loopback. Options of the command line come first."""

    url: str | None = Field(
        default=None,
        description="A server of your own, `tls://HOST:PORT`; without TLS only on this machine.",
    )
    creds: str | None = Field(default=None, description="The credentials file for it.")
    listen: str | None = Field(
        default=None,
        description="Where the embedded server listens, `HOST` or `HOST:PORT`; beyond loopback only with `tls`.",
    )
    mqtt: str | None = Field(
        default=None,
        description="Where the embedded server takes devices that speak MQTT, `HOST:PORT`; default: nowhere.",
    )
    tls: TlsEntry = Field(default=TlsEntry(), description="Files for TLS.")

    @model_validator(mode="after")
    def _no_secret(self) -> Self:
        if self.url is not None and "@" in self.url:
            raise refusal(
                "the address has a password in it, and a deployment file is no place for one",
                "give `creds: FILE`, or HEADGATE_NATS_USER and HEADGATE_NATS_PASSWORD in the environment",
            )
        return self


class LimitsEntry(DocumentEntry):
    """What one identity may take from the others; operators are limited in their requests only."""

    requests: Rate = Field(default=50.0, gt=0, description="Control requests for long, such as `50/s`.")
    burst: int = Field(default=200, ge=1, description="Control requests at once.")
    waiting: int = Field(default=200, ge=1, description="Control requests that may wait for their turn.")
    subscriptions: int = Field(default=1000, ge=0, description="Subscriptions that it may have.")
    filter_cost: Duration = Field(
        default=500e-6, gt=0, description="What evaluating all of its filters may take for a row, such as `500 us`."
    )
    bytes: Bandwidth = Field(default=None, gt=0, description="What it may read for long, such as `10 MB/s`.")
    connections: int = Field(default=64, ge=1, description="Connections at a time that are answered.")
    http: Rate = Field(default=200.0, gt=0, description="Requests of the HTTP API for long, such as `200/s`.")
    publish: Bandwidth = Field(default=None, gt=0, description="What it may publish for long, such as `5 MB/s`.")


def _command(value: Any) -> Any:
    """A command as one text: words, with quotes as in a shell and nothing else of one."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise refusal(f"{value[:60]!r} is no command: {error}") from None


def _webhook(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refusal(f"{text[:100]!r} is no address", "write https://HOST/PATH")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise refusal("an address beyond this machine needs https", "write https://HOST/PATH")
    return text


class AlertsEntry(DocumentEntry):
    """When somebody is told that something is wrong, and how."""

    contract: Duration = Field(default=120.0, description="How long a subscription may be below its contract.")
    silent: Duration = Field(default=30.0, description="How long a site may be silent.")
    ledger: Duration = Field(default=15.0, description="How long rows may be unaccounted for, or not arrive.")
    log: Share = Field(default=0.9, description="How full a log may be.")
    clear: Duration = Field(default=30.0, description="How long all must be well before an alert is over.")
    webhooks: list[Annotated[str, AfterValidator(_webhook)]] = Field(
        default_factory=list, description="Addresses that get each alert as JSON by POST."
    )
    commands: list[Annotated[list[str], BeforeValidator(_command), Field(min_length=1)]] = Field(
        default_factory=list, description="Programs that get each alert as JSON on standard input, run as the service."
    )
