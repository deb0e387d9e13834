"""Mosquitto's own client, as a process."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Mosquitto:
    """A running `mosquitto_sub`."""

    process: asyncio.subprocess.Process
    lines: list[tuple[str, int, Any]] = field(default_factory=list)
    reading: asyncio.Task[None] | None = None

    async def read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            topic, qos, text = line.decode().split(" ", 2)
            self.lines.append((topic, int(qos), json.loads(text)))

    @property
    def seqs(self) -> list[int]:
        return [each["_seq"] for topic, _, each in self.lines if topic.count("/") == 1]

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            await self.process.wait()
        if self.reading is not None:
            await self.reading


async def listen(*arguments: str) -> Mosquitto:
    """Start `mosquitto_sub` with these arguments."""
    command = ["mosquitto_sub", *arguments, "-F", "%t %q %p"]
    device = Mosquitto(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE))
    device.reading = asyncio.create_task(device.read())
    return device
