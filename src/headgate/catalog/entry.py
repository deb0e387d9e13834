"""What the models of the deployment file are made of: names, quantities with their units, and how they are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from headgate.errors import HeadgateError
from headgate.model import parse_bandwidth, parse_bytes, parse_duration, parse_rate
from headgate.model.site import PRIVATE

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"
COLUMN = r"^[^`.\x00-\x1f]{1,128}$"
CONTEXT = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"


def refusal(message: str, hint: str | None = None) -> PydanticCustomError:
    """An error of a validator, with the message and the hint that the user shall see."""
    return PydanticCustomError("headgate", "{message}", {"message": message, "hint": hint})


def _quantity(parse: Callable[[Any], float | None]) -> BeforeValidator:
    def read(value: Any) -> float | None:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise refusal(f"expected a quantity, found {describe(value)}", "write a number and a unit in one value")
        try:
            return parse(value)
        except HeadgateError as error:
            raise refusal(error.message, error.hint) from None

    return BeforeValidator(read)


def describe(value: Any) -> str:
    """A value as a message names it.

    >>> describe(True), describe(2.5), describe([]), describe(None)
    ('the truth value true', 'the number 2.5', 'a list', 'nothing')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    text = str(value)
    return f"the text {text[:60]!r}" + ("..." if len(text) > 60 else "")


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _rate(value: Any) -> float:
    """A rate with its unit: a bare number could be rows a second, a minute or a day."""
    if isinstance(value, int | float) or str(value).strip().replace(".", "", 1).isdigit():
        raise refusal(f"{value} has no unit", f"write a rate such as `{value}/s`")
    return parse_rate(value)


def _server(value: str) -> str:
    """The address of a site's server: dialled by other sites, so it needs a host and a port that they all know."""
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if value == PRIVATE or (parts.scheme in ("nats", "tls") and host and port and "@" not in value):
        return value
    raise refusal(
        f"{value!r} is no address of a site's server",
        f"write `nats://HOST:PORT` or `tls://HOST:PORT`, or `{PRIVATE}` where no other site can dial it",
    )


Duration = Annotated[float, _quantity(parse_duration)]
ServerAddress = Annotated[str, AfterValidator(_server)]
Bandwidth = Annotated[float | None, _quantity(parse_bandwidth)]
Size = Annotated[float, _quantity(parse_bytes)]
Rate = Annotated[float, _quantity(_rate)]
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=NAME)]
Names = Annotated[list[str], BeforeValidator(_one_or_more)]


class DocumentEntry(BaseModel):
    """Anything that stands in a deployment file: no unknown keys, no conversions of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
