"""The answer to `headgate why`: one fate, one paragraph, and what it was told from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.fabric import Fabric
from headgate.model import Stream
from headgate.protocol.reports import OutputReport, RelayReport
from headgate.relay.core import Key, inbox_key
from headgate.relay.tables import TableCache
from headgate.service.books import read_tallies, stored_sums
from headgate.service.reports import read_reports
from headgate.service.why.losses import Losses, losses_of
from headgate.service.why.path import HAS, NOT_YET, PASSED, WITHOUT, Stop, Wanted, follow, path_of
from headgate.service.why.rows import (
    CommittedRow,
    DeclaredGap,
    Sought,
    chooser,
    read_manifests,
    row_at,
    search,
    search_dead,
)
from headgate.service.why.times import time_text
from headgate.service.why.unread import UnreadRow, search_input, search_outboxes
from headgate.service.why.verdict import context_at, judge
from headgate.wire.block import EXPIRED
from headgate.wire.ledger import Tally
from headgate.wire.manifest import Manifest, classes_withheld, tolerances
from headgate.wire.message import json_text
from headgate.wire.snapshot import Snapshot

FATES: Final = (
    "going-up", "unread", "dead", "lost", "unfound", "forgotten", "gap", "before", "unwanted", "unmatched", "thinned",
    "withheld", "in-flight", "reduced", "expired", "waiting", "delivered", "settled",
)  # fmt: skip
"""Everything that can have become of a row."""


@dataclass(frozen=True)
class Fate:
    """What became of a row for a subscription: one of `FATES`, in words, with what it was told from."""

    fate: str
    text: str
    subscription: str
    stream: str
    seq: int | None = None
    row: Mapping[str, Any] | None = None
    path: tuple[Stop, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """JSON-ready, but for values of the row."""
        hops = [
            {"site": stop.site, "from": stop.sender, "state": stop.state, "time_ms": stop.time_ms} for stop in self.path
        ]
        return {
            "fate": self.fate,
            "text": self.text,
            "subscription": self.subscription,
            "stream": self.stream,
            "seq": self.seq,
            "row": None if self.row is None else dict(self.row),
            "path": hops,
            **self.facts,
        }


@dataclass(frozen=True, slots=True)
class Question:
    """Which row: by its sequence number, by a filter, or by its key."""

    seq: int | None = None
    where: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if sum(each is not None for each in (self.seq, self.where, self.key)) != 1:
            raise HeadgateError("which row is asked for is not said", hint="give one of --seq, --where and --key")


async def ask_why(fabric: Fabric, tables: TableCache, snapshot: Snapshot, name: str, question: Question) -> Fate:
    """What became of a row for a subscription, which the snapshot has."""
    return await _Asking(fabric, tables, snapshot, name).answer(question)


async def fate_of(
    fabric: Fabric, tables: TableCache, snapshot: Snapshot, name: str, manifest: Manifest, seq: int
) -> Fate:
    """What became of a row for a subscription, where the manifest that committed it is known."""
    return await _Asking(fabric, tables, snapshot, name).committed(manifest, seq)


@dataclass(frozen=True, slots=True)
class _Sighting:
    """What a search in committed rows and dead letters came to: a fate, or how far it looked and which gaps it saw."""

    fate: Fate | None
    oldest: int
    gaps: tuple[DeclaredGap, ...] = ()
    whole: bool = True


class _Asking:
    def __init__(self, fabric: Fabric, tables: TableCache, snapshot: Snapshot, name: str) -> None:
        self._fabric = fabric
        self._tables = tables
        self._now = snapshot
        self._name = name
        self._id = snapshot.subscription_ids[name]
        self._stream: Stream = snapshot.deployment.streams[snapshot.deployment.subscriptions[name].stream]

    def _fate(self, fate: str, text: str, **more: Any) -> Fate:
        return Fate(fate, text, self._name, self._stream.name, **more)

    async def committed(self, manifest: Manifest, seq: int) -> Fate:
        """Say what became of a row of a manifest."""
        return await self._became(await row_at(self._fabric, self._stream, manifest, seq))

    async def answer(self, question: Question) -> Fate:
        """Find the row, then say what became of it."""
        stream = self._stream
        manifests = await read_manifests(self._fabric, stream.name)
        head = manifests[-1].upto if manifests else 0
        oldest = manifests[0].after if manifests else 0
        if question.seq is not None:
            seq = question.seq
            if seq > head:
                text = f"Row {seq:,} of {stream.name!r} has not been read yet: the last that was committed is {head:,}."
                return self._fate("unread", text, seq=seq)
            manifest = next((each for each in manifests if each.after < seq <= each.upto), None)
            if manifest is None:
                return await self._forgotten(seq, oldest)
            return await self.committed(manifest, seq)
        return await self._searched(manifests, Sought.now(chooser(stream, question.where, question.key)))

    async def _searched(self, manifests: Sequence[Manifest], sought: Sought) -> Fate:
        """Look for a row where it has come to, where it comes from, and then among what was committed meanwhile."""
        fabric, stream = self._fabric, self._stream
        searched = await self._among(manifests, sought)
        if searched.fate is not None:
            return searched.fate
        waiting = await search_outboxes(fabric, stream, list(self._now.deployment.sites), sought)
        unread = waiting if waiting.found else await search_input(fabric, stream, manifests, sought)
        if unread.found is not None:
            return self._unread(unread.found)
        known = {(each.lineage, each.batch) for each in manifests}
        fresh = [each for each in await read_manifests(fabric, stream.name) if (each.lineage, each.batch) not in known]
        later = await self._among(fresh, sought)
        if later.fate is not None:
            return later.fate
        gaps = [*later.gaps, *searched.gaps]
        lost = await losses_of(fabric, stream.name, [*manifests, *fresh], gaps)
        whole = all(each.whole for each in (searched, waiting, unread, later))
        return self._unfound(searched.oldest, lost, waiting.silent, whole=whole)

    async def _among(self, manifests: Sequence[Manifest], sought: Sought) -> _Sighting:
        """What became of the newest chosen row of those that were committed, or are dead letters."""
        searched = await search(self._fabric, self._stream, manifests, sought)
        if searched.found is not None:
            fate = await self._became(searched.found)
            if searched.count > 1:
                more = f" {searched.count:,} rows fit; this is about the newest of them."
                fate = replace(fate, text=fate.text + more)
            return _Sighting(fate, searched.oldest)
        letters = await search_dead(self._fabric, self._stream, manifests, sought)
        letter = letters.letter
        if letter is None:
            return _Sighting(None, searched.oldest, letters.gaps, searched.whole and letters.whole)
        text = f"The row is a dead letter of {self._stream.name!r}, and nobody gets it: {letter['reason']}."
        fate = self._fate("dead", text, row=letter.get("row"), facts={"reason": letter["reason"]})
        return _Sighting(fate, searched.oldest)

    def _unread(self, found: UnreadRow) -> Fate:
        """A row that was published and not read yet."""
        stream, since = self._stream, time_text(found.time_ms)
        facts = {"at": found.site, "place": found.place, "time_ms": found.time_ms}
        if found.rising:
            behind = f", behind {found.before:,} other messages" if found.before else ""
            text = (
                f"The row was published at {found.site!r} at {since} and waits there for its way up to "
                f"{stream.root!r}, the root of {stream.name!r}{behind}."
            )
            return self._fate("going-up", text, row=found.row, facts={**facts, "before": found.before})
        at = f" at {found.site!r}" if found.site else ""
        text = (
            f"The row was published{at}, came into the input of {stream.name!r} at {since} (message {found.place:,} "
            "there), and is not read yet."
        )
        return self._fate("unread", text, row=found.row, facts=facts)

    def _unfound(self, oldest: int, lost: Losses, silent: Sequence[str], *, whole: bool) -> Fate:
        """Nothing like it is anywhere: it may be among rows that were lost before anybody read them, if any were."""
        text = (
            f"No such row is among those after row {oldest:,} of {self._stream.name!r} that anybody matched, nor among "
            "its dead letters, nor in what is not read yet. Rows that nobody matched are counted and not kept."
        )
        if lost:
            text += f" It may be one of those of the stream that were lost before anybody matched them: {lost}."
        if silent:
            text += f" It may also wait at {', '.join(map(repr, silent))}, where nobody answers."
        if not whole:
            text += " The search stopped after its time."
        facts = {"lost": lost.to_document(), "silent": list(silent)} if lost or silent else {}
        return self._fate("lost" if lost else "unfound", text, facts=facts)

    async def _forgotten(self, seq: int, oldest: int) -> Fate:
        """A row that the root log does not hold any more: what the subscriber acknowledged is all that is known."""
        tally = (await read_tallies(self._fabric)).get(self._id) or Tally(self._id)
        starts = await self._starts()
        if starts is not None and seq <= starts:
            return self._before(seq, starts)
        if tally.starts is None or tally.mark < seq:
            text = f"Row {seq:,} was passed on to every site, and the root's log begins after row {oldest:,}."
        else:
            text = (
                f"Row {seq:,} is no longer kept: everybody has been sent what was theirs. {self._name!r} has "
                f"acknowledged up to row {tally.mark:,}: {_counts(tally)}."
            )
        return self._fate("forgotten", text, seq=seq)

    async def _starts(self) -> int | None:
        sums, _ = await stored_sums(self._fabric, self._stream.name)
        return sums.starts.get(self._id)

    def _before(self, seq: int, starts: int) -> Fate:
        text = f"Row {seq:,} came before {self._name!r} was there: it is owed what comes after row {starts:,}."
        return self._fate("before", text, seq=seq)

    def _gap(self, seq: int, manifest: Manifest) -> Fate:
        """A number whose row the root log has lost; it was declared, so that no other row gets that number."""
        first, last = manifest.after + 1, manifest.after + manifest.gaps
        text = (
            f"Row {seq:,} is one of rows {first:,} to {last:,} of {self._stream.name!r}, which were lost with a part "
            f"of the root log. That was declared at {time_text(manifest.time_ms)}, as the stream went on."
        )
        return self._fate("gap", text, seq=seq, facts={"first": first, "last": last, "time_ms": manifest.time_ms})

    async def _became(self, found: CommittedRow) -> Fate:
        """What became of a row that was committed."""
        seq, manifest = found.seq, found.manifest
        then = await self._tables.snapshot(manifest.version)
        subscribed = then.subscription_ids.get(self._name) == self._id
        starts = await self._starts()
        if starts is not None and seq <= starts:
            return self._before(seq, starts)
        if starts is None and not subscribed:
            return self._before(seq, manifest.upto)
        if seq <= manifest.after + manifest.gaps:
            return self._gap(seq, manifest)
        if not found.kept:
            return await self._forgotten(seq, manifest.after)
        if found.row is None:
            text = (
                f"Row {seq:,} was committed at {time_text(manifest.time_ms)} and matched nobody, {self._name!r} "
                "included. The values of such rows are not kept."
            )
            left_out = classes_withheld(manifest.withheld).get(
                (then if subscribed else self._now).class_ids[self._name]
            )
            text += f" {left_out:,} rows of its micro-batch were not looked at for {self._name!r}." if left_out else ""
            return self._fate("unwanted", text, seq=seq)
        row = found.row.to_pylist()[0]
        version = then if subscribed else self._now
        class_id = version.class_ids[self._name]
        if class_id not in found.classes:
            return await self._not_matched(found, version, row)
        return await self._on_its_way(found, version, class_id, row)

    async def _not_matched(self, found: CommittedRow, version: Snapshot, row: Mapping[str, Any]) -> Fate:
        assert found.row is not None
        subscription = version.deployment.subscriptions[self._name]
        context = await context_at(self._fabric, version, self._name, found.manifest)
        verdict = judge(subscription, version.deployment.streams[subscription.stream], found.row, context)
        facts = {"false": [{"part": each.text, "values": dict(each.values)} for each in verdict.false]}
        opening = f"Row {found.seq:,} did not match {self._name!r}: "
        if verdict.false or verdict.outside:
            parts = [str(each) for each in verdict.false]
            parts += [f"it lies outside of its {verdict.outside}"] if verdict.outside else []
            return self._fate("unmatched", opening + "; ".join(parts) + ".", seq=found.seq, row=row, facts=facts)
        if verdict.thinned:
            text = f"Row {found.seq:,} fits {self._name!r}, and its resolution ({verdict.thinned}) leaves it out."
            return self._fate("thinned", text, seq=found.seq, row=row)
        left_out = classes_withheld(found.manifest.withheld).get(version.class_ids[self._name])
        if left_out:
            text = (
                f"Row {found.seq:,} fits {self._name!r}, and is one of {left_out:,} rows of its micro-batch that were "
                "not looked at for it: its filter takes too long, or its owner has used up its share of the matching."
            )
            return self._fate("withheld", text, seq=found.seq, row=row)
        text = (
            f"Row {found.seq:,} fits {self._name!r}, and admission control did not match it for those who tolerate "
            "as much as it does: the stream's job could not keep up, and withheld "
            f"{sum(tolerances(found.manifest.withheld).values()):,} rows from such groups in that micro-batch."
        )
        return self._fate("withheld", text, seq=found.seq, row=row)

    async def _on_its_way(self, found: CommittedRow, version: Snapshot, class_id: int, row: Mapping[str, Any]) -> Fate:
        wanted = Wanted(self._stream.name, found.seq, self._name, self._id, class_id)
        stops, inbox = await follow(self._fabric, self._tables, version, wanted)
        about: dict[str, Any] = {"seq": found.seq, "row": row, "path": (*stops, inbox)}
        tally = (await read_tallies(self._fabric)).get(self._id) or Tally(self._id)
        site = version.deployment.subscriptions[self._name].site
        said = f"Row {found.seq:,} was committed at {time_text(found.manifest.time_ms)} and matched {self._name!r}. "
        said += _way(path_of(version, self._stream.name, site), stops)
        if inbox.state == HAS:
            arrived = f"It reached the inbox at {site!r} at {time_text(inbox.time_ms)}"
            if tally.starts is not None and tally.mark >= found.seq:
                when = f"at {time_text(tally.time_ms)} or before"
                text = f"{arrived}, and was delivered: the reader has acknowledged it, {when}."
                return self._fate("delivered", said + text, **about)
            upto = "nothing yet" if tally.starts is None else f"up to row {tally.mark:,}"
            return self._fate(
                "waiting", f"{said}{arrived}, and waits for its reader, who has acknowledged {upto}.", **about
            )
        lost = next((stop for stop in stops if stop.state == WITHOUT), None)
        if lost is not None or inbox.state == WITHOUT:
            return self._given_up(said, stops, lost or inbox, inbox, about)
        if inbox.state == NOT_YET:
            return await self._in_flight(said, stops, inbox, about)
        given_up = [*tally.reduced.values(), *tally.since.reduced.values(), tally.expired, tally.since.expired]
        if not any(given_up):
            text = f"It was delivered: its reader has acknowledged up to row {tally.mark:,}, and nothing was given up."
            return self._fate("delivered", said + text, **about)
        text = (
            f"The reader has acknowledged up to row {tally.mark:,}: {_counts(tally)}. Which of them this row is "
            "among is not kept once a row is acknowledged."
        )
        return self._fate("settled", said + text, **about)

    def _given_up(self, said: str, stops: list[Stop], lost: Stop, inbox: Stop, about: Mapping[str, Any]) -> Fate:
        """A log covers the row's number without it: its sender gave it up, or one before it whose log is purged."""
        told = lost if lost.given_up else inbox
        before = stops[: stops.index(lost)] if lost is not inbox else stops
        unsure = any(stop.state == PASSED for stop in before)
        where = f"at {lost.sender!r}" + (", or before it," if unsure else "")
        reasons = ", ".join(f"{count:,} by {reason}" for reason, count in told.given_up.items())
        fate = "expired" if set(told.given_up) == {EXPIRED} else "reduced"
        text = f"It was given up {where} on the way to {'the inbox' if lost is inbox else repr(lost.site)}"
        if reasons:
            text += f": of rows {told.first:,} to {told.last:,} so were {reasons}"
        if told.digest:
            text += f" (digest: {json_text(dict(told.digest))})"
        facts = {"at": lost.sender, "given_up": dict(told.given_up), "digest": dict(told.digest)}
        return self._fate(fate, f"{said}{text}.", facts=facts, **about)

    async def _in_flight(self, said: str, stops: list[Stop], inbox: Stop, about: Mapping[str, Any]) -> Fate:
        relays = await read_reports(self._fabric, RelayReport)
        held = next((stop for stop in stops if stop.state == NOT_YET), inbox)
        child = None if held is inbox else held.site
        mine = self._now.deployment.subscriptions[self._name]
        key = Key(self._stream.name, child=child) if child else inbox_key(mine, self._id)
        report = relays.get(held.sender)
        output = report.outputs.get(key.token, OutputReport()) if report is not None else OutputReport()
        behind = f", in a queue of {output.rows:,} rows, the oldest for {output.age_s:,.1f} s" if output.rows else ""
        silent = "" if report is not None else " The relay there has not reported."
        to = f"the link to {child!r}" if child else "the inbox"
        text = f"It is in flight: it waits at {held.sender!r} for {to}{behind}.{silent}"
        facts = {"at": held.sender, "for": child or "inbox", "queued_rows": output.rows}
        return self._fate("in-flight", said + text, facts=facts, **about)


def _way(path: list[str], stops: list[Stop]) -> str:
    """The path of a row with the times that are still known."""
    times = {stop.site: stop.time_ms for stop in stops if stop.state == HAS}
    words = [f"{site!r}" + (f" at {time_text(times[site])}" if times.get(site) else "") for site in path]
    return f"Its path is {' to '.join(words)}. " if len(path) > 1 else ""


def _counts(tally: Tally) -> str:
    reduced = sum(tally.reduced.values()) + sum(tally.since.reduced.values())
    expired = tally.expired + tally.since.expired
    delivered = tally.delivered + tally.since.delivered
    return f"{delivered:,} rows were delivered, {reduced:,} reduced and {expired:,} expired"
