"""The check that a value survives its serde: objects read from its data are equal to it.

A store or a repartition topic would otherwise keep bytes that end the application, or that have lost data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.errors import SerializationError
from penstock.serdes.objects import field_names, name_of

_WITHOUT_PARTS = frozenset({str, int, float, bool, bytes, type(None)})
"""The types of most values, known at once to have no parts."""


def values_in(value: Any) -> Iterator[Any]:
    """Yield the values within `value` that have no parts."""
    for _, each in places_in(value):
        yield each


def places_in(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values within `value` that have no parts, each after its place, such as `prices[0].mean`.

    place: that of `value`; empty for the outermost one.
    """
    parts = _parts_of_value(value)
    if parts is None:
        yield place, value
    elif isinstance(parts, Mapping):
        for name, part in parts.items():
            yield from places_in(part, f"{place}.{name}" if place else str(name))
    else:
        for number, part in enumerate(parts):
            yield from places_in(part, f"{place}[{number}]")


def _parts_of_value(value: Any) -> Mapping[Any, Any] | Sequence[Any] | None:
    if type(value) in _WITHOUT_PARTS:
        return None
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    names = field_names(type(value))
    if names is not None:
        return {name: getattr(value, name) for name in names}
    return value if isinstance(value, Mapping) else None


def check_read_back(topic: str, value: Any, found: Any, wanted: Any) -> None:
    """Raise SerializationError if `found`, read from the data of `value`, has lost a part of it.

    wanted: the class that the serde reads.
    """
    if not (found == value or _is_same(value, found)):
        raise not_read_back(topic, value, wanted, f"it would be read as {found!r:.200}")


def _is_same(value: Any, found: Any) -> bool:
    """Return whether `found` contains all data of `value`.

    Classes may define no equality, tuples may become lists, and defaults may fill fields that a dict omitted.
    """
    parts, others = _parts_of_value(value), _parts_of_value(found)
    if parts is None or others is None or isinstance(value, set | frozenset):
        return _is_same_single(value, found)
    if isinstance(parts, Mapping) and isinstance(others, Mapping):
        return all(name in others and _is_same(part, others[name]) for name, part in parts.items())
    both_are_sequences = not isinstance(parts, Mapping) and not isinstance(others, Mapping)
    return both_are_sequences and len(parts) == len(others) and all(map(_is_same, parts, others))


def _is_same_single(value: Any, found: Any) -> bool:
    if isinstance(value, datetime) and isinstance(found, datetime) and value.tzinfo and found.tzinfo:
        # In the repeated hour of a clock change, a time is unequal to all times of other zones.
        return value.astimezone(UTC) == found.astimezone(UTC)
    return bool(value == found or (value != value and found != found))  # NaN is unequal to itself


def not_read_back(topic: str, value: Any, wanted: Any, reason: str) -> SerializationError:
    """Return the error for a value that its serde could not read again."""
    return SerializationError(
        f"Cannot write {value!r:.200} to {topic!r} as {name_of(wanted)}, for it could not be read again: {reason}. "
        "Change the value or the class, or write it with a serde of your own."
    )
