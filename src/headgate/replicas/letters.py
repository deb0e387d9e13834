"""Letters between sites: to each other site in order, each taken once, sent again until it was taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from headgate.client.reach import PartsReach
from headgate.diagnostics import site_log
from headgate.fabric import FabricError, cancel_all
from headgate.protocol.serving import LetterTaken, ServingLetter, decode_serving, encode_serving
from headgate.wire.frame import WireError

_AGAIN_S: Final = 0.2
_TIMEOUT_S: Final = 10.0
Take = Callable[[ServingLetter], Awaitable[None]]


class Letters:
    """One site's letters about one stream, of one generation of its parts.

    What comes is handed to `take` one by one for each sender, so that one that takes its time holds up its sender
    alone. Letters go by home.
    """

    def __init__(self, reach: PartsReach, site: str, stream: str, generation: int, take: Take) -> None:
        self._reach, self._site, self._stream, self._generation = reach, site, stream, generation
        self._take_one = take
        self._going: dict[str, asyncio.Queue[tuple[int | None, Any]]] = {}
        self._coming: dict[str, asyncio.Queue[ServingLetter]] = {}
        self._taken: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.sent = 0

    def send(self, to: str, demand: int | None, message: Any) -> None:
        """Send a message of the engine to a site, or to the reader who asked there."""
        if to not in self._going:
            self._going[to] = asyncio.Queue()
            self._tasks.append(asyncio.create_task(self._deliver(to), name=f"letters from {self._site} to {to}"))
        self._going[to].put_nowait((demand, message))

    def receive(self, letter: ServingLetter) -> bool:
        """Take a letter, if it is of the same parts; one that came before is only confirmed."""
        if letter.generation != self._generation:
            return False
        if letter.number <= self._taken.get(letter.sender, 0):
            return True
        if letter.number != self._taken.get(letter.sender, 0) + 1:
            return False
        self._taken[letter.sender] = letter.number
        if letter.sender not in self._coming:
            self._coming[letter.sender] = asyncio.Queue()
            self._tasks.append(asyncio.create_task(self._handle(letter.sender), name=f"letters of {letter.sender}"))
        self._coming[letter.sender].put_nowait(letter)
        return True

    async def close(self) -> None:
        """Send and take no more."""
        await cancel_all(self._tasks)

    async def _handle(self, sender: str) -> None:
        while True:
            await self._take_one(await self._coming[sender].get())

    async def _deliver(self, to: str) -> None:
        number = 0
        while True:
            demand, message = await self._going[to].get()
            number += 1
            letter = ServingLetter(self._stream, self._generation, self._site, number, demand, message)
            data = encode_serving(letter)
            while True:
                if await self._delivered(to, data):
                    break
                await asyncio.sleep(_AGAIN_S)
            self.sent += 1

    async def _delivered(self, to: str, data: bytes) -> bool:
        try:
            answer = await self._reach.ask(to, data, _TIMEOUT_S, by_home=True)
            return bool(decode_serving(answer, LetterTaken).taken)
        except (FabricError, WireError) as error:
            site_log(self._site).debug("a letter to %s is sent again: %s", to, error)
            return False
