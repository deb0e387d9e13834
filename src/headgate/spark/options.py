"""Options of the format `headgate`, checked before anything is read or written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.client import SyncClient
from headgate.client.connection import find_url
from headgate.errors import HeadgateError, masked, nearest
from headgate.fabric.environment import nats_options

OPTIONS: Final[Mapping[str, str]] = {
    "subscription": "the subscription to read",
    "stream": "the stream to publish into",
    "nats": "address of NATS, `nats://HOST:PORT` or `tls://HOST:PORT` (HEADGATE_NATS, else that of `state_dir`)",
    "state_dir": "state directory of a deployment on this machine (.headgate)",
    "namespace": "the deployment's namespace (hg)",
    "credentials": "credentials file; only the driver needs it, and executors are given what is in it",
    "max_rows_per_trigger": "rows in one micro-batch (100000)",
    "partitions": "tasks that a large range is read by (2)",
    "metadata": "`true` adds the column `_headgate`: sequence numbers, and rows of what was given up (false)",
    "after_loss": "`true` reads on behind rows that are lost (false)",
    "position": "a batch read begins behind this position token",
    "after": "a batch read begins behind this sequence number (what was last acknowledged)",
    "upto": "a batch read ends with this sequence number (the end of what has come)",
}
"""Options and their defaults, as the documentation lists them."""
_SECRETS: Final = ("password", "token", "user", "secret")
# Spark gives a sink what it gives to the query.
_SPARKS: Final = ("checkpointlocation", "path", "queryname", "outputmode")


class SparkOptionError(HeadgateError):
    """An option of the format `headgate` that is wrong or missing."""


@dataclass(frozen=True)
class SparkOptions:
    """The options, checked. `access` has secrets: it travels to executors inside of pickled objects only."""

    url: str
    namespace: str
    subscription: str | None
    stream: str | None
    max_rows: int
    partitions: int
    metadata: bool
    after_loss: bool
    position: str | None = None
    after: int | None = None
    upto: int | None = None
    access: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, given: Mapping[str, str], environment: Mapping[str, str]) -> SparkOptions:
        """Check what a user wrote."""
        options = {name.lower(): str(value) for name, value in given.items()}
        for name in _SPARKS:
            options.pop(name, None)
        _check_names(options)
        if "position" in options and "after" in options:
            raise SparkOptionError("both `position` and `after` say where to begin", hint="give one of them")
        nats = options.get("nats") or (None if "state_dir" in options else environment.get("HEADGATE_NATS"))
        if nats is not None and masked(nats) != nats and "nats" in options:
            raise SparkOptionError(
                f"the option `nats` has a password in it ({nats}), and Spark's pages show options",
                hint="give `credentials`, or HEADGATE_NATS in the environment of the driver",
            )
        state_dir = options.get("state_dir") or environment.get("HEADGATE_STATE_DIR")
        creds = options.get("credentials") or environment.get("HEADGATE_CREDS")
        access = nats_options(None if creds is None else Path(creds))
        if "user_credentials" in access:
            access["credentials_text"] = Path(access.pop("user_credentials")).read_text(encoding="utf-8")
        return cls(
            url=find_url(nats, None if state_dir is None else Path(state_dir).absolute()),
            namespace=options.get("namespace", "hg"),
            subscription=options.get("subscription"),
            stream=options.get("stream"),
            max_rows=_whole(options, "max_rows_per_trigger", 1, 100_000),
            partitions=_whole(options, "partitions", 1, 2),
            metadata=_yes(options, "metadata"),
            after_loss=_yes(options, "after_loss"),
            position=options.get("position"),
            after=_whole(options, "after", 0, 0) if "after" in options else None,
            upto=_whole(options, "upto", 0, 0) if "upto" in options else None,
            access=access,
        )

    @property
    def reads(self) -> str:
        """The subscription to read."""
        if self.subscription is None:
            raise SparkOptionError(
                "nothing says which subscription to read", hint='write .option("subscription", NAME)'
            )
        return self.subscription

    @property
    def writes(self) -> str:
        """The stream to publish into."""
        if self.stream is None:
            raise SparkOptionError("nothing says which stream to write into", hint='write .option("stream", NAME)')
        return self.stream

    def connect(self) -> SyncClient:
        """A client of its own."""
        return SyncClient(self.url, namespace=self.namespace, **self.access)


def _check_names(options: Mapping[str, str]) -> None:
    for name in options:
        if name in _SECRETS:
            raise SparkOptionError(
                f"the format 'headgate' takes no option {name!r}, which Spark's pages would show",
                hint="give `credentials`, or HEADGATE_NATS_USER and HEADGATE_NATS_PASSWORD in the driver's environment",
            )
        if name not in OPTIONS:
            close = nearest(name, OPTIONS)
            hint = f"did you mean {close!r}?" if close else "options are " + ", ".join(OPTIONS)
            raise SparkOptionError(f"the format 'headgate' has no option {name!r}", hint=hint)


def _whole(options: Mapping[str, str], name: str, least: int, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdigit() or int(text) < least:
        raise SparkOptionError(
            f"{text!r} is not a value for {name!r}", hint=f"write a whole number of at least {least}"
        )
    return int(text)


def _yes(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise SparkOptionError(f"{options[name]!r} is not a value for {name!r}", hint="write true or false")
    return text == "true"
