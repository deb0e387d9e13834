"""Options of the sources `mqtt` and `nats-core`, checked without Spark and without a server.

Neither keeps what was sent in a way that can be read twice. The service collects their messages into the stream's input
log, where they have positions; Spark reads that log, as it does for what clients publish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headgate.pipeline.sources.jsontext import JSON_OPTIONS
from headgate.pipeline.sources.options import SourceError, check_names, count, one_of
from headgate.pipeline.sources.payloads import PAYLOADS

_READING: Final[Mapping[str, str]] = {
    "payload": "`json` (an object a message), `jsonl` (an object a line) or `arrow` (an IPC stream a message)",
    "unknown_columns": "`ignore`, or `dead`: a JSON object with a key that the schema does not have is a dead letter",
    "max_messages_per_trigger": "messages in one micro-batch (500,000)",
    "partitions": "tasks that a large micro-batch is read by (2)",
}
_LOGIN: Final[Mapping[str, str]] = {
    "user": "user name",
    "password": "password",
    "password_file": "file with the password",
    "tls_ca": "file of the certificate authority, for TLS",
    "tls_cert": "file of a certificate of our own, for servers that ask for one",
    "tls_key": "file of its key",
    "plain": "`true` to reach a server that is not on this machine without TLS (false)",
}
MQTT_OPTIONS: Final[Mapping[str, str]] = {
    "url": "the broker, mqtt://HOST:1883 or mqtts://HOST:8883",
    "topic": "the topic, with the wildcards + and #",
    "qos": "quality of service, 0 or 1 (1)",
    "client_id": "the session at the broker (headgate-NAMESPACE-STREAM)",
    **_READING,
    **_LOGIN,
}
"""Options of an `mqtt` source."""
CORE_OPTIONS: Final[Mapping[str, str]] = {
    "url": "the server, nats://HOST:4222 or tls://HOST:4222",
    "subject": "the subject, with the wildcards * and >",
    **_READING,
    **_LOGIN,
    "token": "token",
    "user_credentials": "credentials file",
}
"""Options of a `nats-core` source."""
_SCHEMES: Final = {"mqtt": ("mqtt", "mqtts"), "nats-core": ("nats", "tls")}
_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "nats": 4222, "tls": 4222}
_NEAR: Final = ("localhost", "127.0.0.1", "::1")
_LONGEST: Final = 65_535


@dataclass(frozen=True, slots=True)
class CollectedSettings:
    """The options of a source whose messages are collected, checked. `address` is its topic or its subject."""

    form: str
    scheme: str
    host: str
    port: int
    address: str
    qos: int = 1
    client_id: str | None = None
    access: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def place(self) -> str:
        """The server and what is read of it, for people; without secrets."""
        return f"{self.address!r} of {self.scheme}://{self.host}:{self.port}"

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in ("mqtts", "tls")

    def password(self) -> str | None:
        """The password, read now where it is in a file."""
        if "password_file" not in self.access:
            return self.access.get("password")
        try:
            return Path(self.access["password_file"]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"the file of the password cannot be read: {error}") from error

    @classmethod
    def of(cls, form: str, given: Mapping[str, str]) -> CollectedSettings:
        """Check the options of a source."""
        known = MQTT_OPTIONS if form == "mqtt" else CORE_OPTIONS
        options = {name.lower(): str(value) for name, value in given.items()}
        check_names(form, options, {**known, **dict.fromkeys(JSON_OPTIONS, "")})
        one_of({"payload": options.get("payload", "json")}, "payload", PAYLOADS)
        one_of(options, "unknown_columns", ("ignore", "dead"))
        for name in ("max_messages_per_trigger", "partitions"):
            count(options, name)
        scheme, host, port = _server(form, options)
        access = {name: options[name] for name in (*_LOGIN, "token", "user_credentials") if name in options}
        plain = one_of(options, "plain", ("false", "true")) == "true"
        if scheme in ("mqtt", "nats") and host not in _NEAR and not plain:
            hint = f"write {'mqtts' if form == 'mqtt' else 'tls'}://, or `plain: true` where the network is trusted"
            raise SourceError(f"{host} is not on this machine, and {scheme}:// is not encrypted", hint=hint)
        if {"password", "password_file"} <= set(options):
            raise SourceError("there are both `password` and `password_file`", hint="give one of them")
        if ("tls_cert" in options) != ("tls_key" in options):
            raise SourceError("a certificate needs its key", hint="give both `tls_cert` and `tls_key`")
        return cls(
            form,
            scheme,
            host,
            port,
            _topic(options) if form == "mqtt" else _subject(options),
            int(one_of({"qos": options.get("qos", "1")}, "qos", ("1", "0"))),
            options.get("client_id"),
            access,
        )


def reading_options(options: Mapping[str, str]) -> dict[str, str]:
    """What Spark is told of the options: how the stream's input log is read."""
    kept = {
        name: str(value) for name, value in options.items() if name.lower() in _READING or name.lower() in JSON_OPTIONS
    }
    return {"payload": "json", **kept}


def _server(form: str, options: Mapping[str, str]) -> tuple[str, str, int]:
    schemes = _SCHEMES[form]
    written = f"{schemes[0]}://HOST:PORT or {schemes[1]}://HOST:PORT"
    if "url" not in options:
        raise SourceError(f"the source {form!r} has no server", hint=f"give the option `url`, {written}")
    url = options["url"]
    if "@" in url:
        hint = (
            "give `user`, and `password_file` or `user_credentials`"
            if form != "mqtt"
            else ("give `user` and `password_file`")
        )
        raise SourceError("the address has a password in it", hint=hint)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in schemes or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise SourceError(f"{url!r} is not a value for 'url'", hint=f"write {written}")
    return parts.scheme, parts.hostname, port or _PORTS[parts.scheme]


def _topic(options: Mapping[str, str]) -> str:
    """A topic filter of MQTT."""
    topic = options.get("topic")
    if topic is None:
        raise SourceError("the source 'mqtt' has no topic", hint="give the option `topic`, such as plant/+/state")
    levels = topic.split("/")
    wrong = (
        not topic
        or "\0" in topic
        or len(topic.encode()) > _LONGEST
        or any("#" in level and (level != "#" or place < len(levels) - 1) for place, level in enumerate(levels))
        or any("+" in level and level != "+" for level in levels)
    )
    if wrong:
        hint = "`+` is a whole level, and `#` the last one, as in plant/+/state or plant/#"
        raise SourceError(f"{topic[:100]!r} is no topic of MQTT", hint=hint)
    return topic


def _subject(options: Mapping[str, str]) -> str:
    """A subject of NATS."""
    subject = options.get("subject")
    if subject is None:
        raise SourceError(
            "the source 'nats-core' has no subject", hint="give the option `subject`, such as plant.*.state"
        )
    words = subject.split(".")
    wrong = any(
        not word
        or any(sign.isspace() or sign == "\0" for sign in word)
        or ("*" in word and word != "*")
        or (">" in word and (word != ">" or place < len(words) - 1))
        for place, word in enumerate(words)
    )
    if wrong:
        hint = "`*` is a whole word, and `>` the last one, as in plant.*.state or plant.>"
        raise SourceError(f"{subject[:100]!r} is no subject of NATS", hint=hint)
    return subject
