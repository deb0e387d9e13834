"""The process that carries packets between namespaces: ``python -m headgate_studies.lab.carrier DIRECTORY``.

It opens a TUN device in every namespace, reads packets as the kernel sends them, and writes each to the receiver's
device when `headgate_studies.lab.network` says that it arrives. The devices go when the process goes. It reads
`network.json` again at SIGHUP, and writes what it has carried to `carried.json` twice a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import select
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Final

from headgate_studies.lab.hosts import DEVICE, address, make_reachable
from headgate_studies.lab.network import LabNetwork

_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_TUN_WITHOUT_INFO: Final = 0x1001
_PACKET: Final = 65536
_AT_ONCE: Final = 64
_NICENESS: Final = -15
_REPORT_S: Final = 0.5
_IPV4: Final = 4
_HEADER: Final = 20
Due = tuple[float, int, int, bytes]


def open_device(namespace: str) -> int:
    """A TUN device in a namespace, open in this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(there, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _TUN_WITHOUT_INFO))
        libc.setns(here, _CLONE_NEWNET)
    finally:
        os.close(here)
        os.close(there)
    return device


class PacketCarrier:
    """Packets between some devices, by the number of each host."""

    def __init__(self, directory: Path, devices: dict[int, int]) -> None:
        self._directory = directory
        self._devices = devices
        self._hosts = {device: host for host, device in devices.items()}
        self._network = LabNetwork.parse(json.loads((directory / "network.json").read_text()))
        self._due: list[Due] = []
        self._count = 0
        self._changed = False
        self._ended = False

    def read_again(self, *_: object) -> None:
        """Take over changed paths at the next look."""
        self._changed = True

    def end(self, *_: object) -> None:
        """Stop at the next look."""
        self._ended = True

    def run(self) -> None:
        """Carry packets until told to end."""
        poll = select.epoll()
        for device in self._hosts:
            poll.register(device, select.EPOLLIN)
        report_s = 0.0
        while not self._ended:
            now = time.monotonic()
            if self._changed:
                self._change()
            if now >= report_s:
                self._report()
                report_s = now + _REPORT_S
            self._deliver(now)
            next_s = min(self._due[0][0] if self._due else report_s, report_s)
            for device, _ in poll.poll(max(next_s - time.monotonic(), 0.0)):
                self._take(device)
        self._report()

    def _take(self, device: int) -> None:
        """Read what a host has sent."""
        sender = self._hosts[device]
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(device, _PACKET)
            except BlockingIOError:
                return
            if len(packet) < _HEADER or packet[0] >> 4 != _IPV4:
                continue  # such as a neighbour's solicitation of IPv6
            receiver = packet[19]
            if receiver not in self._devices or packet[16:19] != address(receiver).packed[:3]:
                continue
            now = time.monotonic()
            arrives = self._network.send(sender, receiver, len(packet), now)
            if arrives is not None:
                self._count += 1
                heapq.heappush(self._due, (arrives, self._count, receiver, packet))

    def _deliver(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            _, _, receiver, packet = heapq.heappop(self._due)
            with contextlib.suppress(BlockingIOError):  # its host is too busy to take it: a packet is lost
                os.write(self._devices[receiver], packet)

    def _change(self) -> None:
        self._changed = False
        fresh = LabNetwork.parse(json.loads((self._directory / "network.json").read_text()))
        for ends, path in fresh.paths.items():
            if self._network.paths.get(ends) != path:
                self._network.change(*ends, path)

    def _report(self) -> None:
        part = self._directory / "carried.part"
        part.write_text(json.dumps(self._network.counts()))
        part.replace(self._directory / "carried.json")


def main(directory: Path) -> None:
    """Carry packets between the namespaces of `hosts.json`."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)  # a packet that waits for this process is late, or is dropped
    hosts = json.loads((directory / "hosts.json").read_text())
    devices: dict[int, int] = {}
    for each in hosts:
        devices[each["number"]] = open_device(each["namespace"])
        make_reachable(each["namespace"], each["number"], each["upload_bytes_per_s"])
    carrier = PacketCarrier(directory, devices)
    signal.signal(signal.SIGHUP, carrier.read_again)
    signal.signal(signal.SIGTERM, carrier.end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    (directory / "carrier.pid").write_text(str(os.getpid()))
    carrier.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
