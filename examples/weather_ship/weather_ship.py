"""A weather map for a ship on a thin link: a coarse field at once, a finer one while the link has room.

headgate up headgate.yaml                 # in one terminal
python weather_ship.py                    # in another one, in the same directory
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from headgate.client import Client
from headgate.grid import Field

SHADES = " .:-=+*#%@"


def drawing(field: Field, step: int) -> str:
    """The wind of a time step as text, north up; where nothing came, the nearest point that did."""
    wind = field.filled("wind", step)
    if not np.isfinite(wind).any():
        return "(nothing yet)"
    low, high = np.nanmin(wind), np.nanmax(wind)
    shade = ((wind - low) / max(high - low, 1e-9) * (len(SHADES) - 1)).astype(int)
    return "\n".join("".join(SHADES[place] for place in row) for row in shade[::-1])


async def sail(
    client: Client, finer: tuple[str, ...] = ("1/4", "1"), steps: int | None = None, tell: Callable[[str], None] = print
) -> Field | None:
    """Draw every time step, and ask for a finer map after each; the field after so many steps."""
    wanted, drawn = list(finer), []
    async for field in client.field("map", values=("wind",)):
        for step in field.kept[:-1]:  # a later step has begun to arrive, so these are whole
            if step in drawn:
                continue
            tell(f"step {step}: {field.share('wind', step):.0%} of the points\n{drawing(field, step)}")
            drawn.append(step)
            if len(drawn) == steps:
                return field
            if wanted:
                await client.refine("map", space=wanted.pop(0))
    return None


async def main() -> None:
    async with await Client.connect() as client:
        await sail(client)


if __name__ == "__main__":
    asyncio.run(main())
