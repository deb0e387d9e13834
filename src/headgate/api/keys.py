"""Keys by which a repeated request is recognised, and what was sent under them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from headgate.api.problems import ApiError

_KEPT: Final = 10_000


class IdempotencyKeys:
    """The keys of requests and what was sent under them, as far as this process remembers: the last 10,000."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()

    def check(self, key: str, body: str) -> None:
        """Refuse a key that was used for other rows."""
        if self._known.setdefault(key, body) != body:
            raise ApiError("this key was used for other rows", hint="give every request its own key", kind="conflict")
        self._known.move_to_end(key)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
