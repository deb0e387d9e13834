"""The deployment file as pydantic models: every key, its type, its unit and what it means.

These models are the only definition of the file's keys: the checker, its messages and `docs/reference` read them. They
describe the text of one file; `convert` turns them into the frozen values of `headgate.model`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from headgate.catalog.entry import (
    COLUMN,
    CONTEXT,
    Bandwidth,
    DocumentEntry,
    Duration,
    Name,
    Names,
    Rate,
    ServerAddress,
    Share,
    Size,
    refusal,
)
from headgate.catalog.server_entry import AlertsEntry, LimitsEntry, NatsEntry
from headgate.errors import HeadgateError
from headgate.model import QualityTable, parse_type
from headgate.model.group import LEASE_S
from headgate.model.start import parse_start

ANY_DELAY_S = 1e9
NO_ROOT = ("a stream has a `root`, or several `roots`", "write `root: SITE`")


def _type(text: str) -> str:
    try:
        parse_type(text)
    except HeadgateError as error:
        raise refusal(error.message, error.hint) from None
    return text


def _bare_type(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


def _row(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _preset(value: Any) -> Any:
    return {"preset": value} if isinstance(value, str) else value


def _group(value: Any) -> Any:
    return {} if value is True else {"deal": value} if isinstance(value, str) else value


def _start(value: Any) -> str:
    try:
        return parse_start(value)
    except HeadgateError as error:
        raise refusal(error.message, error.hint) from None


def _empty(value: Any) -> Any:
    return {} if value is None else value


class ColumnEntry(DocumentEntry):
    """A column with a unit; a column without one is written as its type alone."""

    type: Annotated[str, AfterValidator(_type)] = Field(description="A Spark type: `double`, `array<string>`, ...")
    unit: str | None = Field(default=None, description="The unit of the values, as text for people: `degC`.")


class SourceEntry(DocumentEntry):
    """Where a stream's rows come from. Every other key is an option of that format, kept as it is written."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    format: str = Field(
        description="`generator`, `nats`, `nats-core`, `mqtt`, `netcdf`, `zarr`, or a format of Spark such as `json`."
    )


class RequirementEntry(DocumentEntry):
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


class AdmissionEntry(DocumentEntry):
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


class RootEntry(DocumentEntry):
    """One of several roots of a gridded stream: a stream of its own, with its own job, sequence and ledger."""

    site: str = Field(description="The site where the rows of the region get their sequence numbers.")
    region: dict[str, JsonValue] = Field(description="A box; the boxes of all roots together are the grid.")
    source: SourceEntry | None = Field(
        default=None, description="Where the rows of this region come from; default: the stream's source."
    )


class StreamEntry(DocumentEntry):
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
    derive: dict[Annotated[str, Field(pattern=COLUMN)], str] | None = Field(
        default=None,
        min_length=1,
        description="Columns made of earlier rows of the key: `previous(COLUMN)`, `changed(COLUMN)`, "
        "`avg(COLUMN) over last 5 min` (also `count`, `sum`, `min`, `max`), `(A) then (B) within 30 s`; each may end "
        "in `by COLUMN`, default: the stream's `key`.",
    )
    derive_state: dict[str, JsonValue] | None = Field(
        default=None,
        description="What is remembered for them: `late`, how much later than the newest of its key a row may come "
        "(`10 s`), at most `rows` of each key (1,000), and at most `keys` (100,000).",
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


class SiteEntry(DocumentEntry):
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


class QueueEntry(DocumentEntry):
    """Limits of what may wait for a link, for each stream; what does not fit is given up by policy, and declared."""

    max_rows: Annotated[int, Field(ge=1)] | None = Field(default=None, description="Rows that may wait.")
    max_bytes: Size | None = Field(default=None, description="Bytes that may wait, such as `8 MB`.")
    max_age: Duration | None = Field(default=None, description="How long a row may wait, such as `5 s`.")


class PairEntry(QueueEntry):
    """What is known of the path between two sites, the same in both directions."""

    between: Annotated[list[str], Field(min_length=2, max_length=2)] = Field(description="Two sites.")
    delay: Duration | None = Field(default=None, description="One-way delay; default: `default_delay`.")
    capacity: Bandwidth = Field(default=None, description="Bandwidth of this path itself, or `unknown`.")
    bandwidth: Literal["declared", "measured"] = Field(
        default="declared",
        description="`measured`: `capacity` is a first guess, and relays send as much as they measure that comes.",
    )


class LinksEntry(QueueEntry):
    """Links between sites; every pair is linked, or only those that are listed."""

    default_delay: Duration = Field(default=0.0, description="One-way delay of pairs that are not listed.")
    pairs: list[PairEntry] = Field(default_factory=list, description="Pairs with a delay or a capacity of their own.")
    only: Literal["listed"] | None = Field(
        default=None, description="`listed`: pairs that are not listed cannot connect, and are never planned."
    )


class QualityTableEntry(DocumentEntry):
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


class QualityEntry(DocumentEntry):
    """How good the delivery must be; a bare word is a preset."""

    preset: Literal["strict", "timely", "complete", "relaxed"] | None = Field(
        default=None, description="Thresholds to start from."
    )
    drop: Share | None = Field(default=None, description="The tolerated share of lost rows; default 1.")
    delay: Duration | None = Field(default=None, description="The tolerated mean delay; default 10 s.")
    at_least: Share | None = Field(default=None, description="The quality, from 0 to 1, that is promised.")
    table: QualityTableEntry | None = Field(default=None, description="A QoS function of one's own.")


class GroupEntry(DocumentEntry):
    """How rows are dealt to the members of a group; `true` and a bare text, which is `deal`, are short forms."""

    deal: str = Field(
        default="round-robin",
        description="`round-robin`, or an expression over columns and `$values` of members: the largest gets the row.",
    )
    lease: Duration = Field(
        default=LEASE_S, gt=0, description="How long a member may take for a row before another member gets it."
    )
    context: dict[Annotated[str, Field(pattern=CONTEXT)], JsonValue] = Field(
        default_factory=dict, description="The values that members may set, as they are for one that does not."
    )


class SubscriptionEntry(DocumentEntry):
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
    serves: Bandwidth = Field(
        default=None,
        gt=0,
        description="The site owns this box of a gridded stream and answers readers from it, with at most so much "
        "bandwidth, such as `2 Mbit/s`.",
    )
    group: Annotated[GroupEntry, BeforeValidator(_group)] | None = Field(
        default=None, description="Deal the rows out to several members: each row goes to one of them."
    )
    average: Duration | None = Field(
        default=None,
        gt=0,
        description="One row of each key and so much event time, such as `1 h`, with its means, always.",
    )
    paths: Literal[1, 2] = Field(
        default=1, description="2: over two paths without a site in common, where the plan has them; each row once."
    )
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


class SettingsEntry(DocumentEntry):
    """What a deployment says about itself as a whole."""

    objective: str | None = Field(
        default=None, description="What plans are made by, such as `minimise average(path_latency)`; default: quality."
    )
    constraints: list[str] = Field(
        default_factory=list,
        description="What every plan must keep to, such as `fanout <= 6`; `up` refuses to start without one.",
    )
    options: dict[str, JsonValue] = Field(default_factory=dict, description="Settings of the whole deployment.")


class JobEntry(DocumentEntry):
    """A Spark job: a process of its own, which is restarted alone. What is left out is as `up` was told."""

    streams: Names = Field(min_length=1, description="The streams that it runs.")
    master: str | None = Field(default=None, description="Its Spark master, such as `local[1]`.")
    trigger: Duration | None = Field(default=None, gt=0, description="At most so long between two micro-batches.")
    partitions: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Repartition every micro-batch to so many tasks."
    )
    spark: dict[str, str] = Field(default_factory=dict, description="Options of Spark, over those of `up --spark`.")


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
    jobs: dict[Name, JobEntry] = Field(
        default_factory=dict,
        description="Spark jobs by name, to spread streams over processes; other streams run in a job without a name.",
    )
    nats: NatsEntry = Field(default=NatsEntry(), description="Where NATS is and how to be let in.")
    limits: LimitsEntry = Field(default=LimitsEntry(), description="What one identity may take.")
    alerts: AlertsEntry = Field(default=AlertsEntry(), description="When somebody is told, and how.")
