"""A bill of materials of the lock, as CycloneDX: ``python -m headgate_studies.testing.bom requirements.lock``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from headgate import __version__

_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(lock: str) -> list[dict[str, Any]]:
    r"""The distributions of a lock, each with the hashes of its files.

    >>> components("a==1.0 ; python_version < '4' \\\n    --hash=sha256:" + "0" * 64)[0]["purl"]
    'pkg:pypi/a@1.0'
    """
    found: list[dict[str, Any]] = []
    for line in lock.splitlines():
        if pinned := _PINNED.match(line):
            name, version = pinned.groups()
            purl = f"pkg:pypi/{name.lower()}@{version}"
            found.append(
                {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "hashes": []}
            )
        for digest in _HASH.findall(line):
            found[-1]["hashes"].append({"alg": "SHA-256", "content": digest})
    return found


def document(lock: str) -> dict[str, Any]:
    """The whole bill. It has no time in it: the same lock gives the same bill."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "headgate", "version": __version__}},
        "components": components(lock),
    }


if __name__ == "__main__":
    print(json.dumps(document(Path(sys.argv[1]).read_text(encoding="utf-8")), indent=1))
