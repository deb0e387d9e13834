"""What a task tells the driver about what it staged: a row per part, per message of dead letters, and per partition."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

STAGED: Final = pa.schema(
    [
        ("kind", pa.string()),  # part, dead, unsent or counts
        ("log_sequence", pa.int64()),
        ("evaluated", pa.int64()),
        ("kept", pa.int64()),
        ("dead", pa.int64()),
        ("shed", pa.int64()),
        ("classes", pa.int64()),
        ("class_ids", pa.binary()),
        ("class_counts", pa.binary()),
        ("event_ms", pa.float64()),
        ("events", pa.int64()),
        ("busy_s", pa.float64()),
        ("match_s", pa.float64()),
        ("class_s", pa.float64()),
        ("class_bytes", pa.int64()),
        ("sampled", pa.int64()),
        ("missed", pa.float64()),
        ("missed_var", pa.float64()),
        ("wrong", pa.float64()),
        ("wrong_var", pa.float64()),
        ("trouble", pa.string()),
        ("given", pa.int64()),
        ("age_s", pa.float64()),
        ("updates", pa.int64()),
        ("update_s", pa.float64()),
        ("partly_shed", pa.int64()),
        ("withheld", pa.string()),
        ("late", pa.int64()),
        ("unsent", pa.string()),
    ]
)

_DDL: Final = {pa.string(): "string", pa.binary(): "binary", pa.int64(): "bigint", pa.float64(): "double"}
_ZEROS: Final = {pa.string(): "", pa.binary(): b"", pa.int64(): 0, pa.float64(): 0.0}

STAGED_DDL: Final = ", ".join(f"{field.name} {_DDL[field.type]}" for field in STAGED)


def staged_row(**given: Any) -> dict[str, Any]:
    """A row with these values and zeros for the others.

    >>> staged_row(kind="part", evaluated=3)["kept"]
    0
    """
    return {**{field.name: _ZEROS[field.type] for field in STAGED}, **given}
