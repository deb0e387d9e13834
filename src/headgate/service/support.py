"""A bundle for whoever helps: reports, versions and the ends of logs, without passwords, tokens and rows."""

from __future__ import annotations

import io
import json
import re
import tarfile
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from headgate.errors import HeadgateError, masked
from headgate.service.access import token_file
from headgate.service.describing import links_document, stream_document, subscription_document
from headgate.wire.codec import encode_plan, encode_site
from headgate.wire.snapshot import Snapshot

LOGS: Final = (
    "nats/server.log", "job.log", "job-*.log", "http/http.log", "job.json", "job-*.json", "nats/port.json",
)  # fmt: skip
_END_BYTES: Final = 1 << 20
_SECRET: Final = re.compile(
    r"(?i)([\"']?(?:password|passwd|pwd|secret|token|api_?key|authorization)[\"']?\s*[:=]\s*)\S+"
)


def deployment_document(snapshot: Snapshot) -> dict[str, Any]:
    """What is in force; of sources only their format, because their options may have passwords."""
    deployment = snapshot.deployment
    return {
        "revision": snapshot.revision,
        "streams": [stream_document(each) for each in deployment.streams.values()],
        "sites": {name: encode_site(each) for name, each in deployment.sites.items()},
        "links": links_document(snapshot),
        "subscriptions": {
            name: {key: value for key, value in subscription_document(each).items() if key != "context"}
            for name, each in deployment.subscriptions.items()
        },
        "plan": None if snapshot.plan is None else encode_plan(snapshot.plan),
    }


def versions() -> str:
    """Every installed distribution with its version."""
    found = {f"{each.metadata['Name']}=={each.version}" for each in metadata.distributions()}
    return "\n".join(sorted(found, key=str.lower)) + "\n"


def write_bundle(path: Path, state_dir: Path, documents: Mapping[str, Any]) -> list[str]:
    """Write documents and the ends of the logs into an archive that only its owner can read; returns what is in it."""
    secrets = list(_known_secrets(state_dir))
    parts = {f"{name}.json": json.dumps(document, indent=1, default=str) for name, document in documents.items()}
    parts["versions.txt"] = versions()
    for file in (file for pattern in LOGS for file in sorted(state_dir.glob(pattern))):
        parts[f"state/{file.relative_to(state_dir).as_posix()}"] = _end(file)
    try:
        path.touch(0o600)
        path.chmod(0o600)
        with tarfile.open(path, "w:gz") as archive:
            for name, text in parts.items():
                data = without_secrets(text, secrets).encode(errors="replace")
                entry = tarfile.TarInfo(f"headgate-support/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        raise HeadgateError(f"cannot write {path}: {(error.strerror or 'failed').lower()}") from error
    return sorted(parts)


def without_secrets(text: str, known: Iterable[str] = ()) -> str:
    """A text without passwords in URLs, without what follows a word such as `password`, and without known secrets.

    >>> without_secrets('nats://me:s3cret@host {"password": "s3cret"} hunter2', ["hunter2"])
    'nats://me:***@host {"password": *** ***'
    """
    for secret in known:
        text = text.replace(secret, "***")
    return _SECRET.sub(r"\1***", masked(text))


def _known_secrets(state_dir: Path) -> Iterable[str]:
    token = token_file(state_dir)
    if token.exists():
        yield token.read_text(encoding="ascii", errors="replace").strip()


def _end(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(file.tell() - _END_BYTES, 0))
        return file.read().decode(errors="replace")
