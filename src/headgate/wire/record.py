"""Small stored documents as typed records: one encoder and one decoder for all kinds of them.

A record is stored as JSON under a checksum, with its kind and the version of its format before its body, so that a
reader who gets something else is told so instead of taking it for what it is not. The type of the record says what its
body may hold: msgspec refuses everything else.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec
import numpy as np

from headgate.wire.frame import WireError
from headgate.wire.sealed import seal, unseal

T = TypeVar("T")
FORMAT: Final = 2
Count = Annotated[int, msgspec.Meta(ge=0)]
"""A whole number from 0 on."""


class _Envelope(msgspec.Struct):
    kind: str
    format: int
    body: msgspec.Raw


def write_record(kind: str, value: Any) -> bytes:
    """A record as it is stored.

    >>> write_record("past", {"upto": 17})
    b'HGSc6e981a9 {"kind":"past","format":2,"body":{"upto":17}}'
    """
    body = msgspec.Raw(msgspec.json.encode(value, enc_hook=_plain))
    return seal(msgspec.json.encode(_Envelope(kind, FORMAT, body)))


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a record cannot hold {value!r:.40}")


def read_record(kind: str, form: type[T], data: bytes) -> T:
    """Read a stored record of a kind into its type; anything else is a `WireError`."""
    try:
        found = msgspec.json.decode(unseal(data), type=_Envelope)
        if (found.kind, found.format) != (kind, FORMAT):
            raise WireError(f"it is a {found.kind!r:.40} of format {found.format}")  # noqa: TRY301 # told as one below
        return msgspec.json.decode(found.body, type=form)
    except Exception as error:
        raise WireError(f"this is no {kind}: {error or type(error).__name__}") from error
