"""How values look in a case: their text, their number, their JSON. No knowledge of operations here."""

from __future__ import annotations

from typing import Any

from penstock import AggregationWithHeaders, Headers, ValueAndTimestamp, ValueTimestampHeaders
from penstock.windows import Windowed
from tests.oracle.interpreter.handlers import shown

_TWO_TO_64 = 1 << 64
_LONG_MAX = (1 << 63) - 1


def text(value: Any) -> str:
    """Return T(value) of FORMAT.md section 5: `null` for None, a text itself, a number in decimal digits."""
    if value is None:
        return "null"
    if isinstance(value, ValueAndTimestamp):
        return f"<{text(value.value)},{value.timestamp}>"
    return str(value)


def long(value: int) -> int:
    """Return `value` wrapped around to 64 bits with a sign, as arithmetic on a long does."""
    wrapped = value % _TWO_TO_64
    return wrapped if wrapped <= _LONG_MAX else wrapped - _TWO_TO_64


def number(value: Any) -> int:
    """Return N(value) of FORMAT.md section 5: a number, None as 0."""
    return 0 if value is None else int(value)


def to_json(value: Any) -> Any:
    """Return `value` as a case shows it (FORMAT.md section 2)."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, ValueTimestampHeaders):
        return [to_json(value.value), value.timestamp, headers_to_json(value.headers)]
    if isinstance(value, AggregationWithHeaders):
        return [to_json(value.aggregation), headers_to_json(value.headers)]
    if isinstance(value, ValueAndTimestamp):
        return [to_json(value.value), value.timestamp]
    if isinstance(value, Windowed):
        return {"k": to_json(value.key), "start": value.window.start, "end": value.window.end}
    return value


def headers_to_json(headers: Headers) -> list[list[str | None]]:
    """Return headers as pairs of name and text, None for a header without a value."""
    return [[name, shown(name, None if value is None else value.decode())] for name, value in headers]


def headers_from_json(pairs: list[list[str | None]] | None) -> Headers:
    """Return the headers that a step gives as pairs of name and text."""
    return tuple((str(name), None if value is None else value.encode()) for name, value in pairs or [])
