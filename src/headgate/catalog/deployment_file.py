"""Reads a deployment file: all of its problems at once, or a `Deployment` that every other part can rely on.

Each stream, site and subscription is checked on its own, so that one that is broken does not hide the problems of the
others; names that stand in the file count as known even where what they name is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, TypeVar

from headgate.catalog.checks import (
    Flaw,
    check_format,
    check_links,
    check_roots_of,
    check_settings,
    check_spread,
    check_stream,
    check_tree,
    check_victims,
    unknown,
)
from headgate.catalog.convert import (
    to_alerts,
    to_job,
    to_limits,
    to_links,
    to_nats,
    to_roots,
    to_schema,
    to_site,
    to_stream,
    to_subscription,
)
from headgate.catalog.document import (
    NO_ROOT,
    DeploymentEntry,
    JobEntry,
    LinksEntry,
    PairEntry,
    SettingsEntry,
    SiteEntry,
    SourceEntry,
    StreamEntry,
    SubscriptionEntry,
)
from headgate.catalog.entry import describe
from headgate.catalog.job_checks import check_jobs
from headgate.catalog.positions import MAX_BYTES, Document, Path, dotted, read_document
from headgate.catalog.problems import DeploymentError, suggestion
from headgate.catalog.profiles import row_limit_us
from headgate.catalog.wording import broken_keys, salvage, validate
from headgate.errors import HeadgateError
from headgate.model import Deployment, Links, Plan, Schema, Site, Source, Stream, Subscription, Tree
from headgate.model.roots import members_of

T = TypeVar("T")
SourceCheck = Callable[[Stream], None]
_STAND_IN = "unreadable.format"


def load_deployment(
    path: FilePath, schemas: Mapping[str, Schema] | None = None, check_source: SourceCheck | None = None
) -> Deployment:
    """The deployment that a file describes.

    Args:
        path: The file.
        schemas: The schemas of the generators by kind; their streams may leave the schema out.
        check_source: Raises a `HeadgateError` for a stream whose source cannot work; `pipeline.sources` has one.

    Raises:
        DeploymentError: The file has problems; all of them are listed.
        HeadgateError: There is no such file, or it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        what = (error.strerror or "cannot be read").lower()
        raise HeadgateError(f"cannot read {str(path)!r}: {what}", hint="give the path of a deployment file") from None
    return parse_deployment(data, str(path), schemas, check_source)


def parse_deployment(
    text: str | bytes,
    name: str,
    schemas: Mapping[str, Schema] | None = None,
    check_source: SourceCheck | None = None,
) -> Deployment:
    r"""The deployment that a text describes; `name` is what messages call it.

    >>> text = "sites: {oslo: }\nstreams: {t: {root: oslo, schema: {v: double}, source: {format: json}}}"
    >>> parse_deployment(text, "headgate.yaml").streams["t"].schema.names
    ('v',)
    """
    return _Reading(read_document(text, name), schemas or {}, check_source).deployment()


class _Reading:
    """One pass over a document: collects the problems and the values that are sound."""

    def __init__(self, document: Document, generators: Mapping[str, Schema], check_source: SourceCheck | None) -> None:
        self._document = document
        self._generators = generators
        self._check_source = check_source
        self._problems = list(document.problems)
        self._rootless: set[str] = set()

    def deployment(self) -> Deployment:
        value = self._document.value
        if not isinstance(value, dict):
            what = f"a deployment is a mapping, found {describe(value)}"
            raise DeploymentError([self._document.problem((), what, "start with `streams:` and `sites:`")])
        whole, problems = validate(DeploymentEntry, self._document, (), value)
        self._problems += problems
        sites = {name: to_site(name, entry) for name, entry, _ in self._sound("sites", SiteEntry)}
        streams = self._streams()
        subscriptions = self._subscriptions(streams)
        for name in self._part("streams"):
            for stream in [streams[name]] if name in streams else list(members_of(streams, name).values())[:1]:
                for finding in check_victims(stream, subscriptions.values()):
                    self._report(("streams", name), finding)
        links = self._links()
        jobs = {name: to_job(name, entry) for name, entry, _ in self._sound("jobs", JobEntry)}
        for finding in check_jobs(jobs, {**self._part("streams"), **streams}, streams):
            self._report(("jobs",), finding)
        plan = self._plan(streams, subscriptions, links, sites)
        settings = salvage(SettingsEntry, {key: value[key] for key in SettingsEntry.model_fields if key in value})
        if settings is not None:
            for finding in check_settings(settings.objective, settings.constraints, settings.options):
                self._report((), finding)
        if whole is None or self._problems:
            raise DeploymentError(self._problems)
        return Deployment(
            streams=streams,
            sites=sites,
            links=links,
            subscriptions=subscriptions,
            plan=plan,
            objective=whole.objective,
            constraints=tuple(whole.constraints),
            options=dict(whole.options),
            jobs=jobs,
            nats=to_nats(whole.nats),
            limits=to_limits(whole.limits),
            alerts=to_alerts(whole.alerts),
        )

    def _part(self, key: str) -> dict[str, Any]:
        part = self._document.value.get(key)
        return part if isinstance(part, dict) else {}

    def _sound(
        self, part: str, kind: type[T], stand_ins: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[str, T, set[str | int]]]:
        """The entries of a part as far as they are sound in themselves, and their broken keys, which were reported."""
        for name, value in self._part(part).items():
            given = {} if value is None else value
            entry = salvage(kind, given, stand_ins)
            if entry is not None:
                yield name, entry, broken_keys(kind, given)

    def _report(self, path: Path, finding: Flaw) -> None:
        at = (*path, *finding.path)
        message = f"{dotted(at)}: {finding.message}"
        self._problems.append(self._document.problem(at, message, finding.hint, offset=finding.offset))

    def _streams(self) -> dict[str, Stream]:
        """The streams as far as they are sound."""
        streams: dict[str, Stream] = {}
        stand_ins = {"root": next(iter(self._part("sites")), ""), "source": {"format": _STAND_IN}}
        for name, entry, broken in self._sound("streams", StreamEntry, stand_ins):
            path: Path = ("streams", name)
            options = {} if "source" in broken else self._source_options((*path, "source"), entry.source)
            schema = None if entry.columns is None else to_schema(entry.columns)
            if "source" not in broken and "schema" not in self._part("streams")[name]:
                schema = self._generated_schema(path, entry.source.format, options)
            for finding in check_format(entry.source.format) if "source" not in broken else ():
                self._report(path, finding)
            if schema is None:
                continue
            stream = to_stream(name, entry, schema, options)
            if entry.roots is None and not isinstance(self._part("streams")[name].get("root"), str):
                self._rootless.add(name)
                if "root" not in broken and not self._part("streams")[name].get("roots"):
                    self._report(path, Flaw((), *NO_ROOT))
            if entry.roots is not None:
                streams |= self._roots(path, stream, entry)
                continue
            streams[name] = stream
            for finding in self._stream_findings(stream):
                self._report(path, finding)
        return streams

    def _roots(self, path: Path, whole: Stream, entry: StreamEntry) -> dict[str, Stream]:
        """The streams of a gridded one's roots, checked one by one and against each other."""
        sources = {
            root: Source(each.source.format, self._source_options((*path, "roots", root, "source"), each.source))
            for root, each in (entry.roots or {}).items()
            if each.source is not None
        }
        found: dict[str, Stream] = {}
        for root, stream in to_roots(whole, entry, sources).items():
            if stream.name in self._part("streams"):
                what = f"this root is the stream {stream.name!r}, and there is another one of that name"
                self._report(path, Flaw(("roots", root), what, "rename one of the two"))
            for finding in self._stream_findings(stream):
                # What is wrong with the whole is said once.
                if finding.path[:1] == ("root",):
                    self._report(path, replace(finding, path=("roots", root, "site")))
                elif not found:
                    self._report(path, finding)
            found[stream.name] = stream
        for finding in check_roots_of(whole, {root: dict(each.region) for root, each in (entry.roots or {}).items()}):
            self._report(path, finding)
        return found

    def _stream_findings(self, stream: Stream) -> Iterator[Flaw]:
        sites = self._part("sites")
        yield from check_stream(stream, sites)
        yield from self._source_findings(stream)
        root = sites.get(stream.root)
        if isinstance(root, dict) and root.get("nats") is not None:
            what = f"the stream starts at {stream.root!r}, which has a NATS server of its own"
            hint = f"its job writes to the server of `headgate up`: run that at {stream.root!r}, and give it no `nats`"
            yield Flaw(("root",), what, hint)

    def _source_findings(self, stream: Stream) -> Iterator[Flaw]:
        try:
            if self._check_source is not None and stream.source.format != _STAND_IN:
                self._check_source(replace(stream, key=(), event_time=None))  # those have been checked already
        except HeadgateError as error:
            yield Flaw(("source",), error.message, error.hint)

    def _source_options(self, path: Path, entry: SourceEntry) -> dict[str, str]:
        """The source's options as they are written: Spark and the sources read their own types from text."""
        options: dict[str, str] = {}
        for key in entry.model_extra or {}:
            raw = self._document.places[(*path, key)].raw
            if raw is None:
                self._report(path, Flaw((key,), "an option of a source is one plain value", "write it as text"))
            else:
                options[key] = raw
        return options

    def _generated_schema(self, path: Path, form: str, options: Mapping[str, str]) -> Schema | None:
        if form != "generator":
            self._report(path, Flaw(("schema",), "key 'schema' is missing", "add `schema: {column: type}`"))
            return None
        kind = options.get("kind")
        if kind is None:
            hint = suggestion("", sorted(self._generators), "generators")
            self._report(path, Flaw(("source", "kind"), "a generator needs a kind", hint))
        elif kind not in self._generators:
            self._report(path, unknown(("source", "kind"), "generator", kind, self._generators))
        return self._generators.get(kind or "")

    def _subscriptions(self, streams: Mapping[str, Stream]) -> dict[str, Subscription]:
        subscriptions: dict[str, Subscription] = {}
        known = {**{name: streams.get(name) for name in self._part("streams")}, **streams}
        stand_ins = {"site": next(iter(self._part("sites")), "")}
        for name, entry, broken in self._sound("subscriptions", SubscriptionEntry, stand_ins):
            wanted = to_subscription(name, entry)
            limit_us = row_limit_us(self._part("options"))
            checked, findings = check_spread(wanted, streams, known, self._part("sites"), limit_us)
            if "context" in broken:  # a filter cannot be read without the values that it refers to
                findings = [finding for finding in findings if finding.path[:1] not in (("where",), ("context",))]
            for finding in findings:
                self._report(("subscriptions", name), finding)
            for each in checked if "site" not in broken else ():
                if each.name in subscriptions:
                    what = f"this is the subscription {each.name!r} at a root, and there is another one of that name"
                    self._report(("subscriptions", name), Flaw((), what, "rename one of the two"))
                subscriptions[each.name] = each.pause() if entry.paused else each
        return subscriptions

    def _links(self) -> Links:
        written = self._part("links").get("pairs")
        entry = salvage(LinksEntry, self._part("links"))
        if entry is None:
            return Links()
        seen: dict[frozenset[str], int] = {}
        for index, given in enumerate(written if isinstance(written, list) else ()):
            pair = salvage(PairEntry, given)
            if pair is None:
                continue
            path: Path = ("links", "pairs", index, "between")
            for end, site in enumerate(pair.between):
                if site not in self._part("sites"):
                    self._report(path, unknown((end,), "site", site, self._part("sites")))
            ends = frozenset(pair.between)
            if len(ends) == 1:
                self._report(path, Flaw((), f"{pair.between[0]!r} is paired with itself", "name two sites"))
            elif seen.setdefault(ends, index) != index:
                what = f"the same pair as links.pairs[{seen[ends]}]"
                self._report(path, Flaw((), what, "give each pair once; links have no direction"))
        return to_links(entry)

    def _plan(
        self,
        streams: Mapping[str, Stream],
        subscriptions: Mapping[str, Subscription],
        links: Links,
        sites: Mapping[str, Site],
    ) -> Plan | None:
        written = self._document.value.get("plan")
        parents = salvage(dict[str, dict[str, str]], written)
        if parents is None:
            return None
        trees: dict[str, Tree] = {}
        for name, tree in parents.items():
            path: Path = ("plan", name)
            if name not in self._part("streams") and name not in streams:
                self._report(path, unknown((), "stream", name, {**self._part("streams"), **streams}))
            if name not in streams or name in self._rootless:
                continue
            members = {found.site for found in subscriptions.values() if found.stream == name}
            members &= set(self._part("sites"))
            findings = list(check_tree(name, streams[name].root, tree, self._part("sites"), members))
            findings = findings or list(check_links(tree, links, sites))
            for finding in findings:
                self._report(path, finding)
            if not findings:
                trees[name] = Tree(name, streams[name].root, tree)
        return Plan(trees)
