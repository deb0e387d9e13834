"""Trespassing by the other faces of a deployment: as a device over MQTT, and with a user's credentials as commands."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final

from headgate.client import Client
from headgate_studies.testing.mqtt_probe import MqttProbe
from headgate_studies.testing.trespass_outcome import TrespassOutcome

_WAIT_S: Final = 20.0


async def trespass_by_mqtt(
    port: int, password: str, owned: str, subjects: list[str], requests: int, outcome: TrespassOutcome
) -> None:
    """Ask and publish as the device `probe`, which may publish into `notes` and nothing else."""
    chosen = random.Random(outcome.seed + 1)
    probe = await MqttProbe.connect(port, "probe", password)
    topics = ["#", "+/#", "+", f"headgate/{owned}", f"headgate/{owned}/given-up", "headgate/#", "headgate/+",
              f"+/{owned}", "headgate-in/#", "headgate-in/fleet", "$MQTT/#", "$SYS/#", "$JS/#",
              "$MQTT/sub/#", "_INBOX/#", "$share/x/headgate/#"]  # fmt: skip
    topics += [each.replace(".", "/") for each in subjects]
    for _ in range(requests):
        if probe.gone:
            await probe.close()
            probe = await MqttProbe.connect(port, "probe", password)
        topic = chosen.choice(topics)
        outcome.requests += 1
        if chosen.random() < 0.5:
            outcome.kinds["mqtt subscribe"] += 1
            if await probe.subscribe(topic):
                outcome.leaked.append(f"MQTT: the device may listen to {topic!r}")
        else:
            outcome.kinds["mqtt publish"] += 1
            plain = topic.replace("#", "x").replace("+", "x")
            await probe.publish(plain, b'{"vehicle": "v1", "speed": 4711.25}')
        outcome.leaked += [
            f"MQTT: heard {heard} {data[:80]!r}" for heard, data in probe.heard if b"4711.25" not in data
        ]
        probe.heard.clear()
    await probe.close()
    head, body, seal = password.split(".")  # the password says whose it is, under a seal; a name counts for nothing
    for wrong in ("", "x" * len(password), f"{head}.{body[:-4]}AAAA.{seal}", f"{head}.{body}.{seal[::-1]}"):
        try:
            stranger = await MqttProbe.connect(port, "probe", wrong)
        except ConnectionError:
            continue
        outcome.leaked.append("MQTT: somebody was let in with a password that was made up")
        await stranger.close()


async def listen_as_owner(port: int, operator: Client, owned: str, outcome: TrespassOutcome) -> MqttProbe:
    """A device that may read the subscription listens to it; what it hears is looked at by `heard_as_owner`."""
    answer = await operator.control("device-add", name="hers", reads=[owned])
    device = await MqttProbe.connect(port, "hers", str(answer["password"]))
    if not await device.subscribe(f"headgate/{owned}"):
        outcome.refused_to_the_owner.append("MQTT: its own topic")
    return device


async def heard_as_owner(device: MqttProbe, owned: str, outcome: TrespassOutcome) -> None:
    """Wait until the owner's device has heard a row."""
    waited_s = 0.0
    while not device.heard and waited_s < _WAIT_S:
        await asyncio.sleep(0.05)
        waited_s += 0.05
    if not [topic for topic, _ in device.heard if topic == f"headgate/{owned}"]:
        outcome.refused_to_the_owner.append("MQTT: no row on its own topic")
    await device.close()


def trespass_by_cli(url: str, credentials: str, owned: str, requests: int, place: Path) -> TrespassOutcome:
    """Commands with a user's credentials about what is another's; each is asked about what is nobody's, too."""
    from typer.testing import CliRunner

    from headgate.cli.app import app

    outcome, chosen = TrespassOutcome(0), random.Random(requests)
    at = ["--nats", url, "--creds", credentials, "--state-dir", str(place)]
    commands = [
        ["status", "--json"], ["ledger", "--json"], ["mine", "--json"], ["dead", "fleet"], ["user", "list"],
        ["user", "add", "friend", "--operator", "--out", str(place / "friend.creds")], ["device", "list"],
        ["change", "site leaf upload=1bit/s"], ["plans", "history"], ["plans", "propose"], ["unreadable"],
        ["why", owned, "--seq", "1"], ["why", owned, "--where", "speed > 0"], ["move", owned, "root"],
        ["unsubscribe", owned], ["context", owned, "limit=1"], ["pause", owned], ["resume", owned], ["detach", owned],
        ["tail", owned, "--count", "1"], ["refine", owned, "--space", "1/2"],
        ["subscribe", owned, "--stream", "fleet", "--site", "leaf"],
        ["user", "rotate", "ada", "--out", str(place / "ada.creds")], ["user", "grant", "ada", "--stream", "fleet"],
    ]  # fmt: skip
    for _ in range(requests):
        command = chosen.choice(commands)
        outcome.requests += 1
        outcome.kinds["at the prompt"] += 1
        said = []
        for name in (owned, f"{owned[:-1]}2"):
            words = [name if each == owned else each for each in command]
            found = CliRunner().invoke(app, [*words, *at])
            text = f"{found.output}{found.exception or ''}"
            said.append((found.exit_code, text.replace(name, "NAME")))
            if "4711.25" in text or (owned in text and owned not in words):
                outcome.leaked.append(f"headgate {' '.join(words)}: {text[:200]}")
        if owned in command and (said[0] != said[1] or said[0][0] == 0):
            outcome.leaked.append(f"headgate {' '.join(command)}: {said[0]} and {said[1]}")
    return outcome
