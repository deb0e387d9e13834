"""The same client for code without asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from headgate.client.client import Client
from headgate.client.delivery import Delivery, OnDigest, Readable
from headgate.client.entrance import Entrance
from headgate.client.reader import OnGap
from headgate.client.sender import Sender, Sent
from headgate.closing import Closing
from headgate.fabric.sync import LoopThread

T = TypeVar("T")


class SyncSender(Closing):
    """A `Sender` whose work is done in its client's thread. `close` sends what waits, for at most 10 s."""

    def __init__(self, sender: Sender, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._sender = sender
        self._run = run

    def publish(self, rows: Any) -> None:
        """Take rows; they are sent in order."""

        async def work() -> None:
            self._sender.publish(rows)

        self._run(work())

    def move(self, entrance: Entrance) -> None:
        """Publish at another site from now on, as `Sender.move`."""
        self._sender.move(entrance)

    def report(self) -> Sent:
        """What has become of everything so far."""
        return self._sender.report()

    def close(self, timeout_s: float = 10.0) -> Sent:
        """Send what waits and stop."""
        found: Sent = self._run(self._sender.close(timeout_s))
        return found


class SyncClient(Closing):
    """A `Client` on an event loop of its own, in a thread.

    ``for delivery in client.subscribe("storms"): ...`` blocks until rows come; `timeout_s` ends the loop when nothing
    came for that long.
    """

    def __init__(
        self, url: str | None = None, *, state_dir: Path | None = None, namespace: str = "hg", **options: Any
    ) -> None:
        opening = Client.connect(url, state_dir=state_dir, namespace=namespace, **options)
        self._loop, self._client = LoopThread.opened("headgate-client", opening)
        self._run = self._loop.run

    def close(self) -> None:
        """Close the connection and end the thread."""
        with contextlib.closing(self._loop):
            self._run(self._client.close())

    def subscribe(
        self,
        name: str,
        *,
        position: str | None = None,
        peek: bool = False,
        max_rows: int | None = None,
        timeout_s: float | None = None,
        on_digest: OnDigest | None = None,
        on_gap: OnGap | None = None,
        after_loss: bool = False,
        **subscription: Any,
    ) -> Iterator[Delivery]:
        """Deliveries of a subscription, as `Client.subscribe` gives them.

        The subscription is opened, and made or changed, at once; callbacks run in the client's thread.
        """
        inbox = self._run(
            self._client.subscribe(
                name,
                position=position,
                peek=peek,
                max_rows=max_rows,
                on_digest=on_digest,
                on_gap=on_gap,
                after_loss=after_loss,
                **subscription,
            )
        )
        return self._deliveries(inbox, timeout_s)

    def call(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Do something with the asynchronous client and wait for it."""
        return self._run(work(self._client))

    def _deliveries(self, inbox: Readable, timeout_s: float | None) -> Iterator[Delivery]:
        deliveries = inbox.__aiter__()

        async def following() -> Delivery | None:
            try:
                return await asyncio.wait_for(anext(deliveries), timeout_s)
            except (TimeoutError, StopAsyncIteration):
                return None

        async def end() -> None:
            await deliveries.aclose()  # type: ignore[attr-defined] # it is a generator
            await inbox.close()

        try:
            while (delivery := self._run(following())) is not None:
                yield delivery
        finally:
            self._run(end())

    def detach(self, name: str, *, expires: str | float | None = None) -> str:
        """Go away for a while, as `Client.detach`; a loop over the subscription ends. Returns the position."""
        return self._run(self._client.detach(name, expires=expires))

    def attach(
        self, name: str, *, site: str | None = None, timeout_s: float | None = None, **reading: Any
    ) -> Iterator[Delivery]:
        """Read on, from here on at another site if one is given, as `Client.attach`."""
        return self._deliveries(self._run(self._client.attach(name, site=site, **reading)), timeout_s)

    def subscribe_many(self, subscriptions: Mapping[str, Mapping[str, Any]], *, change: bool = False) -> dict[str, Any]:
        """Make many subscriptions in one change, as `Client.subscribe_many`."""
        found: dict[str, Any] = self._run(self._client.subscribe_many(subscriptions, change=change))
        return found

    def move(self, name: str, site: str) -> int:
        """Deliver a subscription at another site; whoever reads it gets what the old site holds first."""
        return self._run(self._client.move(name, site))

    def unsubscribe(self, name: str) -> int:
        """End a subscription."""
        return self._run(self._client.unsubscribe(name))

    def set_context(self, name: str, **values: Any) -> int:
        """Set values of a subscriber's context."""
        return self._run(self._client.set_context(name, **values))

    def set_contexts(self, contexts: Mapping[str, Mapping[str, Any]]) -> int:
        """Set values of several subscribers, by name, all or none of them."""
        return self._run(self._client.set_contexts(contexts))

    def refine(self, name: str, *, add: str | None = None, **resolution: Any) -> list[dict[str, Any]]:
        """Give a running subscription another resolution, or `add` what it lacks; returns what is still missing."""
        return self._run(self._client.refine(name, add=add, **resolution))

    def publish(self, stream: str, rows: Any, *, key: str | None = None, site: str | None = None) -> int:
        """Publish rows into a stream, as `Client.publish`; returns once they are stored."""
        return self._run(self._client.publish(stream, rows, key=key, site=site))

    def entrance(self, stream: str, site: str | None = None) -> Entrance:
        """Where rows are published into a stream, as `Client.entrance`; a sender moves there."""
        return self._run(self._client.entrance(stream, site))

    def sender(self, stream: str, policy: Mapping[str, Any] | None = None, **options: Any) -> SyncSender:
        """A sender that goes on while the connection is away, as `Client.sender`; a context manager."""
        sender = self._run(self._client.sender(stream, policy, **options))
        self._run(sender.__aenter__())
        return SyncSender(sender, self._run)

    def control(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Ask the running service for a change or a report."""
        return self._run(self._client.control(verb, **arguments))
