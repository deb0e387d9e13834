"""Small stored texts under a checksum: records (`headgate.wire.record`) and numbers of which only the latest counts.

``HGS`` and eight hexadecimal digits of the CRC-32, a space, then the text. Without it a changed digit in an
acknowledgement or in a sum would still be JSON. Text without a seal is taken as it is, as people and other programs
write it; a seal that was damaged is neither.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Final

from headgate.wire.frame import WireError

_MAGIC: Final = b"HGS"
_LENGTH: Final = len(_MAGIC) + 9


def seal(text: bytes) -> bytes:
    """Text with its checksum before it.

    >>> seal(b"17")
    b'HGS3f39b042 17'
    >>> unseal(seal(b"17")), unseal(b"17")
    (b'17', b'17')
    """
    return b"%s%08x %s" % (_MAGIC, zlib.crc32(text), text)


def is_sealed(data: bytes) -> bool:
    """Whether a text has a checksum before it.

    >>> is_sealed(seal(b"17")), is_sealed(b"17")
    (True, False)
    """
    return data.startswith(_MAGIC)


def unseal(data: bytes) -> bytes:
    """The text under a seal; `WireError` when it was changed."""
    if not is_sealed(data):
        return data
    text = data[_LENGTH:]
    if data != seal(text):
        raise WireError("it does not fit its checksum")
    return text


def write_number(number: int) -> bytes:
    """A whole number as it is stored."""
    return seal(str(number).encode())


@lru_cache(maxsize=256)  # the newest revision is read again and again
def read_number(data: bytes) -> int:
    """Read a whole number that is not negative, as marks and the newest revision are stored.

    >>> read_number(b"17"), read_number(write_number(17))
    (17, 17)
    """
    text = unseal(data)
    if not text.isdigit() or len(text) > 18:
        raise WireError(f"expected a whole number of at most 18 digits, found {text[:20]!r}")
    return int(text)
