"""Large texts, packed so that they fit into one message: a mark, the size of the text, and the text under zstd."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_MARK: Final = b"HGZ"
_HEAD: Final = len(_MARK) + 4
_LARGE: Final = 256 << 10
# No text shrinks more: a size beyond it is a broken one, and would be allocated.
_MOST: Final = 100_000


def pack_text(data: bytes) -> bytes:
    """The bytes as they are sent: a small text as it is.

    >>> pack_text(b"{}"), is_packed(pack_text(b"{}")), len(pack_text(bytes(1 << 20))) < 1000
    (b'{}', False, True)
    """
    if len(data) < _LARGE:
        return data
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return _MARK + len(data).to_bytes(4, "little") + packed


def is_packed(data: bytes) -> bool:
    """Whether a text was packed."""
    return data[: len(_MARK)] == _MARK


def unpack_text(data: bytes, most: int) -> bytes:
    """The inverse; `ValueError` where it would take more than so many bytes, or is no packed text.

    >>> unpack_text(pack_text(bytes(1 << 20)), 1 << 20) == bytes(1 << 20)
    True
    """
    if not is_packed(data):
        return data
    size = int.from_bytes(data[len(_MARK) : _HEAD], "little")
    if size > most:
        raise ValueError(f"it has {size:,} bytes, and {most:,} are taken")
    if size > _MOST * len(data):
        raise ValueError(f"{len(data):,} bytes cannot hold {size:,}")
    try:
        text: bytes = pa.decompress(data[_HEAD:], decompressed_size=size, codec="zstd", asbytes=True)
    except OSError as error:  # Arrow's own error
        raise ValueError(str(error)) from None
    return text
