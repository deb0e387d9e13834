"""What a site's relay and the Spark job may do, as subjects: the roles that a program has, beside those of people.

Each role has an account of NATS of its own, without logs. What it may do is the list of subjects that its account takes
from `home`, where the logs are; everything else does not exist there. A list changes with the plan, and is in force for
connections that are open as soon as the server has it. Credentials do not change with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.model import Stream
from headgate.wire.logs import Logs

SITE: Final = "site"
JOB: Final = "job"
HOME_API: Final = "$JS.home.API"
"""What the subjects of JetStream begin with in the account of a role: `$JS.API` would ask for logs of its own there."""
_API: Final = "$JS.API"
GET: Final = f"{_API}.DIRECT.GET"
_NEXT: Final = f"{_API}.CONSUMER.MSG.NEXT"
# What `home` offers to roles, in any namespace; which of it a role takes is stated by the operator's key alone.
EXPORTS: Final = (
    "*.site.*.in.*.*",
    "*.site.*.held.*",
    "*.inbox.*.*",
    "*.stats.*.*",
    "*.hold.*",
    "*.mark.*.*",
    "*.pin.*",
    "*.catalog.past.*",
    "*.quarantine.*",
    "*.root.*.*",
    "*.in.*.carried",
    "*.door.*.*",
    "*.up.*.*",
    "*.repair.*.*",
    "*.tune.*.*",
    "*.tuner.*",
    "*.grid.*.*",
    "*.ack.*",
    "*.linked.*.*.*",
    "*.host.*.*",
    "*.join.*",
    f"{GET}.*",
    f"{GET}.*.>",
    f"{_API}.STREAM.INFO.*",
    f"{_API}.STREAM.PURGE.*",
    f"{_API}.STREAM.NAMES",
    f"{_NEXT}.*.*",
)
NEWS: Final = ("*.new.>", "*.catalog.head")
SEVERAL_ANSWERS: Final = (f"{GET}.*", "*.linked.*.*.*", f"{_NEXT}.*.*")
"""Requests that may be answered by more than one message."""

Edge = tuple[str, str, str]
"""A stream, a parent and its child in a plan."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Subjects that a role may publish or ask (`services`), hear of (`news`), and answers itself (`answers`)."""

    services: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


def local_subject(subject: str) -> str:
    """The name that a subject of `home` has in the account of a role.

    >>> local_subject("$JS.API.STREAM.INFO.HG_TABLES"), local_subject("hg.hold.leaf")
    ('$JS.home.API.STREAM.INFO.HG_TABLES', 'hg.hold.leaf')
    """
    return HOME_API + subject.removeprefix(_API) if subject.startswith(f"{_API}.STREAM.") else subject


def site_answers(logs: Logs, site: str) -> tuple[str, ...]:
    """Where a site's relay answers: requests of `home`, and of other sites, each under its own name."""
    own = logs.repair(site), logs.asked_at(site, "*"), logs.hosted(site), logs.entered(site, "*")
    return *own, logs.grid(site, "*"), logs.upward(site), logs.upward_from(site, "*"), *_tuned(logs, site)


def guest_rights(logs: Logs, child: str, parent: str) -> Rights:
    """What a child may do at the server of its parent: read its own link's log, purge what it has taken, send up.

    It reads by consumers that the parent makes for it: who makes one says where it delivers to.
    """
    log = logs.site(child).name
    services = (f"{GET}.{log}", f"{GET}.{log}.>", f"{_NEXT}.{log}.*", *_managed(log), logs.upward_from(parent, child))
    return Rights(services, (logs.news(logs.links_into(child)),))


def grid_rights(logs: Logs, site: str, asker: str) -> Rights:
    """What somebody who was let in at a site's server to read parts of gridded streams may do there: ask for them."""
    return Rights((logs.grid(site, asker),))


def _tuned(logs: Logs, site: str) -> tuple[str, str]:
    return logs.tune(site), logs.tuned_by(site, "*")


def site_rights(
    logs: Logs,
    site: str,
    roots: Iterable[Stream],
    edges: Iterable[Edge],
    hosts: Collection[str] = (),
    tuned: Iterable[str] = (),
    above: Iterable[str] = (),
    serving: Mapping[str, Sequence[int]] | None = None,
) -> Rights:
    """What the relay of a site may do: its own logs, blocks for its children, and questions to those above it.

    `roots` are all streams, as each has a root that may be asked. `edges` are those of the plan in force, and of plans
    before it that still have rows under way. `hosts` are the sites that have a server of their own. `tuned` are all
    sites where the tuner owns the plan: it measures links to sites that may become neighbours, so that each may write
    to each, in its own name. `above` are the sites to which it passes what is published at sites. `serving` are the
    sites that serve parts of gridded streams, each with the numbers of the subscriptions that its parts are filled by,
    which it reads and acknowledges itself.
    """
    roots = list(roots)
    own = [logs.site(site).name, logs.inbox(site).name]
    services = [logs.held_at(site), logs.inboxes_at(site), logs.stats("relay", site), logs.hold(site)]
    services += [logs.quarantine(f"relay-{site}"), logs.stats("process", f"relay-{site}"), logs.stats("links", site)]
    services += _read_state(logs, *_seen(logs, site))
    for log in own:
        services += [f"{GET}.{log}", f"{GET}.{log}.>", *_managed(log)]
    services += _tables(logs)
    news = [logs.news(logs.links_into(site)), logs.head]
    asked: set[str] = set()
    for stream in roots:
        services += _read_state(logs, logs.past(stream.name))
        services += _read_state(logs, logs.ledger(stream.name)) if site in (serving or {}) else ()
        asked.add(stream.root)
        if stream.root == site:
            log = logs.root(stream.name).name
            services += [logs.mark(site, stream.name), logs.past(stream.name)]
            services += [f"{GET}.{log}", f"{GET}.{log}.>", *_managed(log)]
            services += _read_state(logs, logs.mark(site, stream.name), logs.ledger(stream.name))
            news.append(logs.news(logs.commit(stream.name)))
    if site in hosts:
        services += [logs.joined(site), f"{_NEXT}.{logs.site(site).name}.*", *_read_state(logs, logs.hosts)]
    for stream_name, parent, child in edges:
        edge = parent, child, stream_name
        if parent == site:
            link = logs.link(site, child, stream_name)
            services += [link, f"{GET}.{logs.site(child).name}.{link}", logs.linked(site, child, stream_name)]
            services += _read_state(logs, logs.stats("relay", child))  # how far it is
        if child == site:
            asked.add(parent)
            if parent in hosts:  # what it sends is carried into the site's log by the site itself
                services += [logs.entered(parent, site), *(() if site in hosts else (logs.link(*edge),))]
    services += [logs.asked_at(other, site) for other in sorted(asked - {site})]
    services += _upward(logs, site, roots, hosts, above)
    news += [logs.news(logs.outbox_of(site, "*"))] if any(each.source.published for each in roots) else []
    others = sorted(set(tuned) - {site})
    services += [*([logs.tuner(site)] if others else []), *(logs.tuned_by(other, site) for other in others)]
    services += _serving(logs, site, serving or {}, hosts)
    return Rights(tuple(dict.fromkeys(services)), tuple(news), site_answers(logs, site))


def _serving(logs: Logs, site: str, serving: Mapping[str, Sequence[int]], hosts: Collection[str]) -> list[str]:
    """What a site needs to serve parts of gridded streams: the others that do, and readers of its own parts."""
    if site not in serving:
        return []
    services = [logs.stats("grid", site), *_read_state(logs, logs.runs)]
    services += [logs.ack(each) for each in serving[site]]
    others = sorted(serving.keys() - {site})
    services += [logs.grid(other, site) for other in others]
    return services + [logs.entered(other, site) for other in others if other in hosts]


def _upward(
    logs: Logs, site: str, streams: Iterable[Stream], hosts: Collection[str], above: Iterable[str]
) -> list[str]:
    """What a site needs for rows that are published at sites: its outbox, the sites above it, the doors of its streams.

    Nobody but publishers writes into an outbox: what a site passes on names where it was published, and the site above
    takes it from the site that is just below it on that way only.
    """
    published = [each for each in streams if each.source.published]
    if not published:
        return []
    log = logs.outbox(site).name
    services = [logs.stats("upward", site), f"{GET}.{log}", f"{GET}.{log}.>", *_managed(log)]
    for other in sorted(above):
        services += [logs.upward_from(other, site), *([logs.entered(other, site)] if other in hosts else [])]
    for stream in published:
        if stream.root == site:
            carried = logs.carried(stream.name)
            services += [carried, f"{GET}.{logs.input(stream.name).name}.{carried}", logs.door(stream.name, "*")]
            services += _read_state(logs, logs.door(stream.name, "*"))
    return services


def job_role(name: str) -> str:
    """The role of a Spark job, by its name in the deployment file; the one without a name is `job`."""
    return f"{JOB} {name}" if name else JOB


def job_rights(logs: Logs, streams: Iterable[Stream], held: Mapping[str, Sequence[str]], name: str = "") -> Rights:
    """What a Spark job may do: the root logs of its streams, their pins, and its own reports.

    `held` are, by subject that a source reads, the logs that hold it.
    """
    services = [
        logs.job_stats(name),
        logs.stats("process", f"job-{name}" if name else "job"),
        *_read_state(logs, logs.head, logs.purging),
        *_tables(logs),
    ]
    for stream in streams:
        name, root = stream.name, logs.root(stream.name).name
        written = [logs.part(name), logs.dead(name), logs.commit(name), logs.files(name), logs.memory(name)]
        state = [logs.pin(name), logs.stats("job", name), logs.stats("errors", name), logs.stats("sample", name)]
        state += [logs.quarantine(f"driver-{name}"), logs.quarantine(f"job-{name}")]
        services += [*written, *state, *_read_state(logs, *state), f"{GET}.{root}", f"{GET}.{root}.>", *_managed(root)]
        if stream.source.collected:
            own = logs.input(name).name
            services += [f"{GET}.{own}", *_managed(own)]
        if stream.source.format == "nats" and "url" not in stream.source.options:
            services += _source(logs, stream, held)
    return Rights(tuple(dict.fromkeys(services)), (logs.head,))


def subject_read(stream: Stream) -> str | None:
    """The subject that a source reads without naming the log that holds it; None where there is none."""
    options = stream.source.options
    own = stream.source.format == "nats" and "url" not in options
    return str(options["subject"]) if own and "subject" in options and "log" not in options else None


def _source(logs: Logs, stream: Stream, held: Mapping[str, Sequence[str]]) -> list[str]:
    """The log that a `nats` source reads: the stream's own input, or one that the deployment file names."""
    options, subject = stream.source.options, subject_read(stream)
    if "log" in options:
        found = [str(options["log"])]
    else:
        found = [logs.input(stream.name).name] if subject is None else list(held.get(subject, ()))
    services = [] if subject is None else [f"{_API}.STREAM.NAMES"]
    for log in found:
        services += [f"{GET}.{log}", *_managed(log)]
    if stream.source.published:
        services.append(f"{GET}.{logs.input(stream.name).name}.{logs.carried(stream.name)}")
    return services


def _seen(logs: Logs, site: str) -> tuple[str, ...]:
    """Values of the state log that a relay reads; acknowledgements of all subscriptions are among them."""
    acks = f"{logs.namespace}.ack.*"
    own = (logs.hold(site), logs.stats("relay", site), logs.quarantine(f"relay-{site}"))
    return logs.head, logs.purging, logs.oldest, acks, *own


def _read_state(logs: Logs, *subjects: str) -> list[str]:
    return [f"{GET}.{logs.state.name}.{subject}" for subject in subjects]


def _tables(logs: Logs) -> list[str]:
    log = logs.tables.name
    return [f"{GET}.{log}.{logs.any_table}", f"{_API}.STREAM.INFO.{log}"]


def _managed(log: str) -> list[str]:
    return [f"{_API}.STREAM.INFO.{log}", f"{_API}.STREAM.PURGE.{log}"]
