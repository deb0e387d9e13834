"""Options of the source `nats`, checked without Spark and without a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.pipeline.sources.jsontext import JSON_OPTIONS
from headgate.pipeline.sources.options import SourceError, check_names, count, one_of
from headgate.pipeline.sources.payloads import PAYLOADS

if TYPE_CHECKING:
    from headgate.fabric import SyncFabric

OPTIONS: Mapping[str, str] = {
    "url": "the server (the deployment's own)",
    "log": "the JetStream stream (the deployment's input log of this stream, else the one that holds the subject)",
    "subject": "the subject, wildcards allowed (where clients publish into this stream)",
    "namespace": "the deployment's namespace (hg)",
    "payload": "`arrow` (an IPC stream a message), `json` (an object a message) or `jsonl` (an object a line)",
    "unknown_columns": "`ignore`, or `dead`: a JSON object with a key that the schema does not have is a dead letter",
    "on_gap": "`fail` the batch or `declare` a dead letter when messages were deleted before they were read",
    "start": "`first`, `new` or a sequence; a query that was stopped goes on where it was",
    "purge": "`never`, or `committed`: delete what is committed (`committed` for the deployment's input log)",
    "max_messages_per_trigger": "messages in one micro-batch (500,000)",
    "partitions": "tasks that a large micro-batch is read by (2)",
    "user": "user name",
    "password": "password",
    "token": "token",
    "user_credentials": "credentials file",
    "tls_ca": "file of the certificate authority, for TLS",
    "tls_cert": "file of a certificate of our own, for servers that ask for one",
    "tls_key": "file of its key",
    "plain": "`true` to reach a server that is not on this machine without TLS (false)",
}
"""Options of a `nats` source and their defaults."""


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """The options of a NATS source, checked. In the log of our own, `unsent` is the subject of what senders gave up.

    `carried` is that of what was published at sites.
    """

    url: str
    log: str | None
    subject: str
    payload: str
    declare_gaps: bool
    start: str
    purge: bool
    max_messages: int | None
    partitions: int
    namespace: str
    unsent: str | None = None
    carried: str | None = None
    access: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> NatsSettings:
        """Check the options; `stream` is the stream that the source belongs to."""
        from headgate.wire.logs import Logs

        options = {name.lower(): str(value) for name, value in options.items()}
        stream = options.pop("stream", None)
        check_names("nats", options, {**OPTIONS, **dict.fromkeys(JSON_OPTIONS, "")})
        namespace = options.get("namespace", "hg")
        log, subject = options.get("log"), options.get("subject")
        own = log is None and subject is None
        if own:
            if stream is None:
                raise SourceError("the source 'nats' has no subject", hint="give the option `subject`")
            log, subject = Logs(namespace).input(stream).name, Logs(namespace).published(stream)
        if "url" not in options:
            raise SourceError("the source 'nats' has no server", hint="give the option `url`, nats://HOST:PORT")
        start = options.get("start", "first")
        if start not in ("first", "new") and not (start.isdigit() and int(start) > 0):
            raise SourceError(f"{start!r} is not a value for 'start'", hint="write first, new or a sequence from 1")
        words = ("committed", "never") if own else ("never", "committed")
        access: dict[str, str] = {
            name: options[name]
            for name in ("user", "password", "token", "user_credentials", "tls_ca", "tls_cert", "tls_key", "plain")
            if name in options
        }
        if "user_credentials" in access:  # executors may not have the file; what is in it travels with their tasks
            file = Path(access.pop("user_credentials"))
            if not file.exists():
                raise SourceError(f"there is no credentials file {file}", hint="check the option `user_credentials`")
            access["credentials_text"] = file.read_text(encoding="utf-8")
        return cls(
            url=options["url"],
            log=log,
            subject=subject or ">",
            payload=one_of(options, "payload", PAYLOADS),
            declare_gaps=one_of(options, "on_gap", ("fail", "declare")) == "declare",
            start=start,
            purge=one_of(options, "purge", words) == "committed",
            max_messages=count(options, "max_messages_per_trigger"),
            partitions=count(options, "partitions", 2) or 2,
            namespace=namespace,
            unsent=Logs(namespace).unsent(stream) if own and stream is not None else None,
            carried=Logs(namespace).carried(stream) if own and stream is not None else None,
            access=access,
        )

    def connect(self) -> SyncFabric:
        """A connection of its own."""
        from headgate.fabric import SyncFabric
        from headgate.wire.logs import Logs

        return SyncFabric(self.url, Logs(self.namespace), **self.access)
