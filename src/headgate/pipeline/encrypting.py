"""Encryption between the driver of a Spark job and its executors: settings of Spark, and the secret that they share.

Spark's own protocol: both sides prove that they know a secret and agree on a key, and all between driver, executors and
the daemons of a standalone cluster is encrypted with it; what executors write for shuffles is, too. On YARN and
Kubernetes Spark makes a secret for each application by itself. A standalone cluster has one secret for all, which its
master and workers have to be given: it lies in a file of Spark properties in the state directory, made where there is
none. The secret goes to Spark by that file only, as arguments of a process can be read by everybody.
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headgate.errors import HeadgateError
from headgate.fabric.address import is_loopback
from headgate.fabric.place import write_whole

AUTHENTICATE: Final = "spark.authenticate"
SECRET: Final = "spark.authenticate.secret"  # noqa: S105 - the name of a setting
CLUSTER_FILE: Final = "spark-cluster.conf"
_OWN_SECRETS: Final = ("yarn", "k8s://")
"""Masters for which Spark makes a secret for each application."""
ENCRYPTED: Final[Mapping[str, str]] = {
    AUTHENTICATE: "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}
"""What Spark is told, here and at the master and the workers of a standalone cluster."""
_HEAD: Final = """\
# The secret that the driver of Headgate's job shares with its Spark cluster, and how they encrypt.
# Add these lines to conf/spark-defaults.conf of the standalone master and of every worker, and start them again.
"""


class EncryptionError(HeadgateError):
    """Encryption of a Spark cluster that cannot be had as it is asked for."""


def is_encrypted(master: str, options: Mapping[str, str]) -> bool:
    """Whether what passes between driver and executors is encrypted: on a cluster, unless that is declined.

    All of it is in this process, or on this machine, where the master is local or listens on loopback.

    >>> [is_encrypted(master, {}) for master in ("local[2]", "yarn", "spark://127.0.0.1:7077", "spark://big:7077")]
    [False, True, False, True]
    >>> is_encrypted("spark://big:7077", {"spark.authenticate": "false"})
    False
    """
    said = options.get(AUTHENTICATE)
    if said is not None:
        return said.strip().lower() == "true"
    if master.startswith("local"):
        return False
    # Of several masters, as in `spark://one:7077,two:7077`, one that is elsewhere is enough.
    hosts = [urlsplit(f"spark://{each}").hostname or "" for each in master.removeprefix("spark://").split(",")]
    return not master.startswith("spark://") or not all(map(is_loopback, hosts))


def encryption(master: str, options: Mapping[str, str], state_dir: Path | None) -> dict[str, str]:
    """Spark's settings for encryption; the environment is told in which file the secret is.

    Raises:
        EncryptionError: The secret was given as an option, or there is no place for it.
    """
    if SECRET in options:
        raise EncryptionError(
            f"{SECRET} was given as an option, which everybody on this machine can read",
            hint=f"write it into {CLUSTER_FILE} of the state directory",
        )
    if not is_encrypted(master, options):
        return {}
    if not master.startswith(_OWN_SECRETS):
        if state_dir is None:
            raise EncryptionError(
                f"there is no state directory to keep the secret of {master!r} in",
                hint=f"decline encryption with --spark {AUTHENTICATE}=false",
            )
        _tell(cluster_file(state_dir))
    return dict(ENCRYPTED)


def cluster_file(state_dir: Path) -> Path:
    """The file with the secret of a standalone cluster; made where there is none."""
    path = state_dir.absolute() / CLUSTER_FILE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = {**ENCRYPTED, SECRET: secrets.token_hex(32)}
        write_whole(path, _HEAD + "".join(f"{key} {value}\n" for key, value in lines.items()))
    return path


def _tell(path: Path) -> None:
    """Make Spark read a file of properties, which no argument shows, beside its own defaults."""
    given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    if str(path) not in given:
        place = shlex.quote(str(path))
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--load-spark-defaults --properties-file {place} {given}"


def refused_hint(state_dir: Path | None) -> str:
    """What to do where a cluster does not take a job that encrypts."""
    path = Path(CLUSTER_FILE) if state_dir is None else cluster_file(state_dir)
    return (
        f"check --master and the Spark options; a standalone master and its workers need the lines of {path} in "
        f"conf/spark-defaults.conf, or decline encryption with --spark {AUTHENTICATE}=false"
    )
