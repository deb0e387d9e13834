"""What the environment says about NATS: secrets come by it or by a file, as arguments are for all to see."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from headgate.errors import HeadgateError

# Options of a connection, and the variable of the environment that each is read from.
FILES: Final = {"tls_ca": "HEADGATE_TLS_CA", "tls_cert": "HEADGATE_TLS_CERT", "tls_key": "HEADGATE_TLS_KEY"}
WORDS: Final = {
    "user": "HEADGATE_NATS_USER",
    "password": "HEADGATE_NATS_PASSWORD",
    "token": "HEADGATE_NATS_TOKEN",
    "plain": "HEADGATE_PLAIN_NATS",
    "tls_fingerprint": "HEADGATE_TLS_FINGERPRINT",
}


def nats_options(credentials: Path | None, **files: str | None) -> dict[str, Any]:
    """How to prove who we are to NATS, and who signed the server: files, and what the environment says.

    `files` are what the deployment file says; the environment comes first.
    """
    given = {**files, **{key: os.environ[name] for key, name in FILES.items() if os.environ.get(name)}}
    found: dict[str, Any] = {key: os.environ[name] for key, name in WORDS.items() if os.environ.get(name)}
    for key, file in {"user_credentials": credentials, **given}.items():
        if file is None:
            continue
        if not Path(file).exists():
            raise HeadgateError(f"there is no file {file}", hint=f"check --creds and {', '.join(FILES.values())}")
        found[key] = str(Path(file).absolute())
    return found
