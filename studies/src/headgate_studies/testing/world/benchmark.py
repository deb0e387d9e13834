"""How fast the simulated logs are: ``python -m headgate_studies.testing.world.benchmark`` prints rates."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from headgate.virtual.server import SimulatedServer
from headgate.wire.logs import Logs

_ROUNDS: Final = 100_000


def fenced_appends(rounds: int) -> int:
    """Append to a link with a fence, read back what came, purge from time to time: what a relay does."""
    server, logs = SimulatedServer(), Logs()
    log = logs.site("b")
    server.ensure(log)
    subject, pattern = logs.link("a", "b", "s"), logs.links_into("b")
    last, block = 0, object()
    for number in range(rounds):
        last = server.publish(subject, block, size=1000, expect=last, now=number * 0.01)
        server.read(log, pattern, last - 1)
        if number % 100 == 99:
            server.purge(log, subject, last)
    return 2 * rounds


def latest_values(rounds: int) -> int:
    """Write and look up values of which only the latest counts."""
    server, logs = SimulatedServer(), Logs()
    log = logs.state
    server.ensure(log)
    subjects = [logs.ack(number) for number in range(50)]
    for number in range(rounds):
        subject = subjects[number % 50]
        server.publish(subject, number, size=100, now=number * 0.01)
        server.last(log, subject)
    return 2 * rounds


def reads_in_batches(rounds: int) -> int:
    """Read a log of many inboxes from its beginning, 256 messages at a time; counts messages."""
    server, logs = SimulatedServer(), Logs()
    log = logs.inbox("b")
    server.ensure(log)
    subjects = [logs.delivery("b", number) for number in range(50)]
    for number in range(rounds):
        server.publish(subjects[number % 50], number, size=100)
    found, after = 0, 0
    while batch := server.read(log, f"{logs.namespace}.inbox.>", after):
        found, after = found + len(batch), batch[-1].sequence
    return rounds + found


def main() -> None:
    """Print operations per CPU second."""
    cases: tuple[Callable[[int], int], ...] = (fenced_appends, latest_values, reads_in_batches)
    for case in cases:
        start_s = time.process_time()
        operations = case(_ROUNDS)
        spent_s = time.process_time() - start_s
        print(f"{case.__name__:<18}{operations / spent_s:>12,.0f} operations per CPU second")


if __name__ == "__main__":
    main()
