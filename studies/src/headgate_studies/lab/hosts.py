"""Network namespaces of this machine as hosts: made, shaped, found and removed with iproute2."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from headgate.errors import HeadgateError

DEVICE: Final = "lab0"
PREFIX: Final = "hglab"
MOST_HOSTS: Final = 250
_NETWORK: Final = IPv4Address("10.77.0.0")
_BURST_S: Final = 0.01
_LEAST_BURST: Final = 16 << 10
_WAIT_S: Final = 5.0


class LabError(HeadgateError):
    """The laboratory cannot do what was asked."""


def address(number: int) -> IPv4Address:
    """The address of a host, counted from 1.

    >>> str(address(3))
    '10.77.0.3'
    """
    return _NETWORK + number


def namespace(lab: str, site: str) -> str:
    """The namespace of a site in a laboratory."""
    return f"{PREFIX}-{lab}-{site}"


def ip(*arguments: str, inside: str = "", check: bool = True) -> str:
    """Run `ip`, in a namespace where one is given, and return what it prints."""
    command = ["ip", *(("netns", "exec", inside, "ip") if inside else ()), *arguments]
    return _run(command, check=check)


def _run(command: list[str], *, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()}", hint="a laboratory needs Linux and root")
    return done.stdout


@cache
def unavailable() -> str | None:
    """Why no laboratory can be made here, None where one can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"there is no program `{program}`: install iproute2"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    trial = f"{PREFIX}-trial-{os.getpid()}"
    try:
        ip("netns", "add", trial)
    except LabError as error:
        return f"network namespaces are not allowed: {error}"
    ip("netns", "del", trial)
    return None


def make(name: str) -> None:
    """Make a namespace with its loopback."""
    ip("netns", "add", name)
    ip("link", "set", "lo", "up", inside=name)


def make_reachable(name: str, number: int, upload_bytes_per_s: float | None) -> None:
    """Give the device in a namespace its address and its upload."""
    ip("addr", "add", f"{address(number)}/16", "dev", DEVICE, inside=name)
    ip("link", "set", DEVICE, "up", inside=name)
    if upload_bytes_per_s is not None:
        burst = str(int(max(upload_bytes_per_s * _BURST_S, _LEAST_BURST)))
        rate = f"{int(upload_bytes_per_s * 8)}bit"
        shape = ["tc", "qdisc", "replace", "dev", DEVICE, "root", "tbf", "rate", rate, "burst", burst]
        _run(["ip", "netns", "exec", name, *shape, "latency", "250ms"])


def interface_bytes(name: str) -> tuple[int, int]:
    """What the kernel counts on the device of a namespace: bytes received and sent."""
    (device,) = json.loads(ip("-s", "-j", "link", "show", DEVICE, inside=name))
    stats = device["stats64"]
    return int(stats["rx"]["bytes"]), int(stats["tx"]["bytes"])


def namespaces(lab: str) -> list[str]:
    """The namespaces of a laboratory."""
    found = (line.split()[0] for line in ip("netns", "list").splitlines() if line.strip())
    return [name for name in found if name.startswith(f"{PREFIX}-{lab}-")]


def remove(name: str) -> None:
    """End every process in a namespace, and remove it."""
    for end in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _WAIT_S
        while (pids := [int(pid) for pid in ip("netns", "pids", name, check=False).split()]) and (
            time.monotonic() < deadline
        ):
            for pid in pids:
                _end(pid, end)
            time.sleep(0.05)
    ip("netns", "del", name, check=False)


def _end(pid: int, end: signal.Signals) -> None:
    try:
        os.kill(pid, end)
    except ProcessLookupError:
        return
