"""Parts: what one task of a micro-batch staged in the root log. Nobody sees a part until a manifest names it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.wire.frame import decode_frame, encode_frame
from headgate.wire.integers import decode_sorted, encode_sorted
from headgate.wire.lists import decode_classes, encode_classes
from headgate.wire.rows import decode_rows, encode_rows


@dataclass(frozen=True, slots=True)
class Part:
    """The matched rows of a run of evaluated rows.

    `positions` are the places of the kept rows among the `evaluated` ones, from 0; a row that no class wants is
    counted but not kept. The manifest turns positions into sequence numbers.
    """

    evaluated: int
    positions: npt.NDArray[np.uint64]
    rows: pa.RecordBatch
    classes: ClassLists


def encode_part(part: Part, classes: tuple[dict[str, int], list[bytes]] | None = None) -> bytes:
    """The bytes of a part; its schema is the stream's. `classes` are its lists if they are encoded already."""
    header, sections = classes or encode_classes(part.classes)
    header = {"evaluated": part.evaluated, "rows": part.rows.num_rows, **header}
    return encode_frame("p", header, [encode_sorted(part.positions), encode_rows(part.rows), *sections])


def decode_part(data: bytes, schema: pa.Schema) -> Part:
    """Read a part of a stream with this schema."""
    frame = decode_frame(data, "p")
    count = int(frame.header["rows"])
    return Part(
        int(frame.header["evaluated"]),
        decode_sorted(frame.sections[0], count),
        decode_rows(frame.sections[1], schema, count),
        decode_classes(frame.header, frame.sections[2:], count)[0],
    )
