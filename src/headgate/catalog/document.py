"""The deployment file as pydantic models: every key, its type, its unit and what it means.

These models are the only definition of the file's keys: the checker, its messages and `docs/reference` read them. They
describe the text of one file; `convert` turns them into the frozen values of `headgate.model`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from headgate.errors import HeadgateError
from headgate.model import QualityTable, parse_bandwidth, parse_bytes, parse_duration, parse_rate, parse_type
from headgate.model.site import PRIVATE
from headgate.model.start import parse_start

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"
COLUMN = r"^[^`.\x00-\x1f]{1,128}$"
ANY_DELAY_S = 1e9
NO_ROOT = ("a stream has a `root`, or several `roots`", "write `root: SITE`")
CONTEXT = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"


def refusal(message: str, hint: str | None = None) -> PydanticCustomError:
    """An error of a validator, with the message and the hint that the user shall see."""
    return PydanticCustomError("headgate", "{message}", {"message": message, "hint": hint})


def _quantity(parse: Callable[[Any], float | None]) -> BeforeValidator:
    def read(value: Any) -> float | None:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise refusal(f"expected a quantity, found {describe(value)}", "write a number and a unit in one value")
        try:
            return parse(value)
        except HeadgateError as error:
            raise refusal(error.message, error.hint) from None

    return BeforeValidator(read)


def describe(value: Any) -> str:
    """A value as a message names it.

    >>> describe(True), describe(2.5), describe([]), describe(None)
    ('the truth value true', 'the number 2.5', 'a list', 'nothing')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    text = str(value)
    return f"the text {text[:60]!r}" + ("..." if len(text) > 60 else "")


def _type(text: str) -> str:
    try:
        parse_type(text)
    except HeadgateError as error:
        raise refusal(error.message, error.hint) from None
    return text


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _bare_type(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


def _row(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _preset(value: Any) -> Any:
    return {"preset": value} if isinstance(value, str) else value


def _start(value: Any) -> str:
    try:
        return parse_start(value)
    except HeadgateError as error:
        raise refusal(error.message, error.hint) from None


def _empty(value: Any) -> Any:
    return {} if value is None else value


def _rate(value: Any) -> float:
    """A rate with its unit: a bare number could be rows a second, a minute or a day."""
    if isinstance(value, int | float) or str(value).strip().replace(".", "", 1).isdigit():
        raise refusal(f"{value} has no unit", f"write a rate such as `{value}/s`")
    return parse_rate(value)


def _server(value: str) -> str:
    """The address of a site's server: dialled by other sites, so it needs a host and a port that they all know."""
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if value == PRIVATE or (parts.scheme in ("nats", "tls") and host and port and "@" not in value):
        return value
    raise refusal(
        f"{value!r} is no address of a site's server",
        f"write `nats://HOST:PORT` or `tls://HOST:PORT`, or `{PRIVATE}` where no other site can dial it",
    )


Duration = Annotated[float, _quantity(parse_duration)]
ServerAddress = Annotated[str, AfterValidator(_server)]
Bandwidth = Annotated[float | None, _quantity(parse_bandwidth)]
Size = Annotated[float, _quantity(parse_bytes)]
Rate = Annotated[float, _quantity(_rate)]
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=NAME)]
Names = Annotated[list[str], BeforeValidator(_one_or_more)]


class Entry(BaseModel):
    """Anything that stands in a deployment file: no unknown keys, no conversions of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ColumnEntry(Entry):
    """A column with a unit; a column without one is written as its type alone."""

    type: Annotated[str, AfterValidator(_type)] = Field(description="A Spark type: `double`, `array<string>`, ...")
    unit: str | None = Field(default=None, description="The unit of the values, as text for people: `degC`.")


class SourceEntry(Entry):
    """Where a stream's rows come from. Every other key is an option of that format, kept as it is written."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    format: str = Field(
        description="`generator`, `nats`, `netcdf`, `zarr`, or any Spark streaming format such as `json` or `kafka`."
    )


class RequirementEntry(Entry):
    """What delivery must keep to under overload; a bare text is the name of a scenario. The method follows from it."""

    preset: Literal["e-science", "sports results", "location based service", "load balancing"] | None = Field(
        default=None, description="One of four scenarios to start from."
    )
    bound: Duration | None = Field(default=None, description="The latency to hold; default: any.")
    false_negatives: bool | Share | None = Field(
        default=None, description="Whether some matches may be missed, or which share of them: `0.1`."
    )
    false_positives: bool | None = Field(default=None, description="Whether some matches may be wrong.")
    lasting: bool | None = Field(default=None, description="Whether errors may outlive the overload.")
    state: Literal["updates first", "messages first", "arrival"] | None = Field(
        default=None, description="Which state of contexts a late row is matched with."
    )


class AdmissionEntry(Entry):
    """What the job does with rows and updates of contexts when it cannot keep up."""

    require: Annotated[RequirementEntry, BeforeValidator(_preset)] | None = Field(
        default=None, description="What must be kept, instead of `method` and `bound`: the method is chosen from it."
    )
    method: Literal["traditional", "shed", "shed updates", "shed both", "batch", "hybrid"] = Field(
        default="traditional", description="The control method."
    )
    bound: Duration | None = Field(default=None, description="The latency that the method tries to hold.")
    options: dict[str, JsonValue] = Field(
        default_factory=dict,
        description=(
            "Settings of the method: `seed`, `settle`; `order` (updates first, messages first, arrival) for batch and "
            "hybrid; `arrived`, the timestamp column that places rows among the updates of contexts; `messages_share`, "
            "the share of the excess that shed both takes from rows; `victims`, a filter: rows it takes go before "
            "others; `update_victims`, a filter over the values that an update of a context sets (`x`), those that it "
            "replaces (`was_x`) and the `subscriber`: updates it takes are shed before others."
        ),
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.require is not None and (self.method != "traditional" or self.bound is not None):
            raise refusal(
                "`require` chooses the method and the bound", "write either `require` or `method` and `bound`"
            )
        return self


SchemaEntry = dict[
    Annotated[str, Field(pattern=COLUMN)],
    Annotated[ColumnEntry, BeforeValidator(_bare_type)],
]


class RootEntry(Entry):
    """One of several roots of a gridded stream: a stream of its own, with its own job, sequence and ledger."""

    site: str = Field(description="The site where the rows of the region get their sequence numbers.")
    region: dict[str, JsonValue] = Field(description="A box; the boxes of all roots together are the grid.")
    source: SourceEntry | None = Field(
        default=None, description="Where the rows of this region come from; default: the stream's source."
    )


class StreamEntry(Entry):
    """A typed stream with one root site, or a gridded one with several."""

    root: str | None = Field(default=None, description="The site where the rows get their sequence numbers.")
    roots: Annotated[dict[Name, RootEntry], Field(min_length=1)] | None = Field(
        default=None, description="Instead of `root`, for a gridded stream: its region roots by name."
    )
    columns: SchemaEntry | None = Field(
        default=None,
        alias="schema",
        min_length=1,
        description="Columns by name: a type, or `{type, unit}`. A generator's stream may leave it out.",
    )
    source: SourceEntry = Field(description="Where the rows come from.")
    key: Names = Field(default_factory=list, description="The column or columns that name the thing a row is about.")
    event_time: str | None = Field(default=None, description="The timestamp column that says when a row happened.")
    rate: Rate | None = Field(
        default=None, description="The expected rate, such as `200/s`; default: the source's own `rate`, else unknown."
    )
    grid: dict[str, JsonValue] | None = Field(
        default=None, description="How rows lie in space and time; regions and resolutions need it."
    )
    gridding: dict[str, JsonValue] | None = Field(
        default=None, description="Where the source gives irregular stations: how they become a complete grid."
    )
    admission: Annotated[AdmissionEntry, BeforeValidator(_empty)] = Field(
        default=AdmissionEntry(), description="What happens under overload."
    )
    keep: Duration | None = Field(
        default=None,
        gt=0,
        description="How long rows are kept once they are accounted for, for subscriptions that start in the past; "
        "default: while there is room.",
    )
    options: dict[str, JsonValue] = Field(default_factory=dict, description="Settings of the stream's job.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.root is None) == (self.roots is None):
            raise refusal(*NO_ROOT)
        return self


class SiteEntry(Entry):
    """A place that runs a relay."""

    upload: Bandwidth = Field(default=None, description="Bandwidth out of the site, or `unknown`.")
    download: Bandwidth = Field(default=None, description="Bandwidth into the site, or `unknown`.")
    position: Annotated[list[float], Field(min_length=2, max_length=2)] | None = Field(
        default=None, description="Latitude and longitude in degrees."
    )
    processing_delay: Duration = Field(default=0.0, description="Time that the site needs for one block.")
    nats: ServerAddress | None = Field(
        default=None, description="Address of the site's own NATS server, where the site is a host of its own."
    )


class QueueEntry(Entry):
    """Limits of what may wait for a link, for each stream; what does not fit is given up by policy, and declared."""

    max_rows: Annotated[int, Field(ge=1)] | None = Field(default=None, description="Rows that may wait.")
    max_bytes: Size | None = Field(default=None, description="Bytes that may wait, such as `8 MB`.")
    max_age: Duration | None = Field(default=None, description="How long a row may wait, such as `5 s`.")


class PairEntry(QueueEntry):
    """What is known of the path between two sites, the same in both directions."""

    between: Annotated[list[str], Field(min_length=2, max_length=2)] = Field(description="Two sites.")
    delay: Duration | None = Field(default=None, description="One-way delay; default: `default_delay`.")
    capacity: Bandwidth = Field(default=None, description="Bandwidth of this path itself, or `unknown`.")


class LinksEntry(QueueEntry):
    """Links between sites; every pair is linked, or only those that are listed."""

    default_delay: Duration = Field(default=0.0, description="One-way delay of pairs that are not listed.")
    pairs: list[PairEntry] = Field(default_factory=list, description="Pairs with a delay or a capacity of their own.")
    only: Literal["listed"] | None = Field(
        default=None, description="`listed`: pairs that are not listed cannot connect, and are never planned."
    )


class QualityTableEntry(Entry):
    """A QoS function by its values at points of drop and delay; values fall with both."""

    kind: Literal["steps", "linear"] = Field(default="steps", description="How values hold between the points.")
    drop: list[Share] = Field(min_length=1, description="Rising drops.")
    delay: list[Duration] | None = Field(default=None, min_length=1, description="Rising delays; default: any delay.")
    value: list[Annotated[list[Share], BeforeValidator(_row)]] = Field(
        min_length=1, description="For each drop the values at each delay, or one value without delays."
    )

    @model_validator(mode="after")
    def _monotone(self) -> Self:
        try:
            self.table()
        except ValueError as error:
            raise refusal(str(error)) from None
        return self

    def table(self) -> QualityTable:
        """The table of the model; a ValueError says why there is none."""
        rows = tuple(tuple(row) for row in self.value)
        return QualityTable(self.kind, tuple(self.drop), tuple(self.delay or [ANY_DELAY_S]), rows)


class QualityEntry(Entry):
    """How good the delivery must be; a bare word is a preset."""

    preset: Literal["strict", "timely", "complete", "relaxed"] | None = Field(
        default=None, description="Thresholds to start from."
    )
    drop: Share | None = Field(default=None, description="The tolerated share of lost rows; default 1.")
    delay: Duration | None = Field(default=None, description="The tolerated mean delay; default 10 s.")
    at_least: Share | None = Field(default=None, description="The quality, from 0 to 1, that is promised.")
    table: QualityTableEntry | None = Field(default=None, description="A QoS function of one's own.")


class SubscriptionEntry(Entry):
    """Who wants which rows and columns of a stream, and how well."""

    site: str = Field(description="The site that serves the subscriber.")
    stream: str = Field(description="The stream.")
    where: str = Field(default="true", description="Which rows: a filter in SQL; `$name` is a value of `context`.")
    select: Names | None = Field(default=None, min_length=1, description="Which columns, in this order; default: all.")
    resolution: dict[str, JsonValue] | None = Field(
        default=None, description="How much of a gridded stream: `{space: 1/4, time: 1/2}`."
    )
    region: dict[str, JsonValue] | None = Field(
        default=None, description="Which part of a gridded stream: a `box`, a `polygon` or a `circle`."
    )
    quality: Annotated[QualityEntry, BeforeValidator(_preset)] = Field(
        default=QualityEntry(), description="How well: thresholds, or the name of a preset."
    )
    policy: dict[str, JsonValue] | None = Field(
        default=None, description="What to give up first when bandwidth is short."
    )
    context: dict[Annotated[str, Field(pattern=CONTEXT)], JsonValue] = Field(
        default_factory=dict, description="Values that `where` refers to as `$name`."
    )
    weight: float = Field(default=1.0, gt=0, description="Importance against other subscriptions.")
    priority: int = Field(
        default=0, description="Where bandwidth is shared, a higher priority is served in full before a lower one."
    )
    format: Literal["arrow", "json"] = Field(default="arrow", description="How rows are delivered.")
    start: Annotated[str, BeforeValidator(_start)] = Field(
        default="now",
        description="Where delivery starts: `now`, `earliest` of what is kept, a time, or the number of a row.",
    )
    expires: Duration | None = Field(default=None, description="How long rows are kept for a subscriber that is away.")
    every: Duration | None = Field(
        default=None, gt=0, description="At most one row of each key in so much event time, such as `10 s`, always."
    )
    at_most: Rate | None = Field(default=None, gt=0, description="At most so many rows, such as `10/s`, always.")
    profile: str = Field(default="relational", description="The language of `where`.")
    require: Annotated[RequirementEntry, BeforeValidator(_preset)] | None = Field(
        default=None,
        description="What it must be kept under overload: rows are never shed for one that may miss nothing, and at "
        "most that share of them for one with `false_negatives: 0.1`.",
    )
    context_from: Name | None = Field(
        default=None, description="A subscription whose rows set the values of `context`, by the names of its columns."
    )
    paused: bool = Field(default=False, description="Whether it takes no rows for now; `headgate resume` changes that.")
    owner: str = Field(default="", description="The user it belongs to; default: the operators. It never changes.")


class SettingsEntry(Entry):
    """What a deployment says about itself as a whole."""

    objective: str | None = Field(
        default=None, description="What plans are made by, such as `minimise average(path_latency)`; default: quality."
    )
    constraints: list[str] = Field(
        default_factory=list,
        description="What every plan must keep to, such as `fanout <= 6`; `up` refuses to start without one.",
    )
    options: dict[str, JsonValue] = Field(default_factory=dict, description="Settings of the whole deployment.")


class TlsEntry(Entry):
    """Files in PEM for TLS."""

    cert: str | None = Field(default=None, description="The certificate of the embedded server, or our own.")
    key: str | None = Field(default=None, description="Its key.")
    ca: str | None = Field(
        default=None, description="The authority that signed a server of your own, or clients of the embedded one."
    )


class NatsEntry(Entry):
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


class LimitsEntry(Entry):
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


class AlertsEntry(Entry):
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


class DeploymentEntry(SettingsEntry):
    """A whole deployment file."""

    streams: dict[Name, StreamEntry] = Field(description="Streams by name.", min_length=1)
    sites: dict[Name, Annotated[SiteEntry, BeforeValidator(_empty)]] = Field(description="Sites by name.", min_length=1)
    links: Annotated[LinksEntry, BeforeValidator(_empty)] = Field(
        default=LinksEntry(), description="Delays and capacities between sites."
    )
    subscriptions: dict[Name, SubscriptionEntry] = Field(
        default_factory=dict, description="Subscriptions by name; more can be added while the deployment runs."
    )
    plan: dict[str, dict[str, str]] | None = Field(
        default=None, description="Fixed delivery trees: for a stream, the parent of each site. Default: planned."
    )
    nats: NatsEntry = Field(default=NatsEntry(), description="Where NATS is and how to be let in.")
    limits: LimitsEntry = Field(default=LimitsEntry(), description="What one identity may take.")
    alerts: AlertsEntry = Field(default=AlertsEntry(), description="When somebody is told, and how.")
