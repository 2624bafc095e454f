"""Positional arguments in the order of Kafka's Java methods, distinguished by type (Kafka class: Topology).

In Python's own order, names, topics and parents are positional and all other arguments are keywords. Users may write
either.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from penstock.plan.offset_reset import OffsetReset
from penstock.plan.subtopology import StreamPartitioner
from penstock.plan.suppliers import SupplierLike
from penstock.processor.timestamps import TimestampExtractor
from penstock.serdes import Serde

Options = dict[str, Any]
"""Arguments that are positional in Java and keywords in Python, by keyword."""


Positional = str | re.Pattern[str] | Serde | TimestampExtractor | StreamPartitioner | None
"""Types of positional arguments."""


class GlobalOrder(NamedTuple):
    """The arguments of `add_global_store` and `add_read_only_state_store` after the source's name."""

    topic: str
    processor: str
    supplier: SupplierLike
    options: Options


def source_order(*given: object) -> tuple[Any, tuple[Any, ...], Options]:
    """Return the name, topics and options of a source.

    In Java, an offset reset and a timestamp extractor may precede the name, an extractor and two deserializers may
    follow it, and a pattern may replace the topics.
    """
    left, options = list(given), Options()
    if isinstance(left[0], OffsetReset):
        options["offset_reset"] = str(left.pop(0))
    if left and _is_function(left[0]):
        options["timestamp_extractor"] = left.pop(0)
    if not left:
        raise TypeError("Expected the name of the source and its topics after the offset reset.")
    name = left.pop(0)
    if name is not None and not isinstance(name, str):
        raise TypeError(
            f"Expected the name of the source, got {name!r}: pass name and topics by position, "
            "everything else by keyword."
        )
    if left and _is_function(left[0]):
        options["timestamp_extractor"] = left.pop(0)
    options |= _taken_serdes(left)
    if len(left) == 1 and isinstance(left[0], re.Pattern):
        options["pattern"] = left.pop(0)
    return name, tuple(left), options


def sink_order(*given: object) -> tuple[tuple[Any, ...], Options]:
    """Return the parents and options of a sink.

    In Java, two serializers and a partitioner may precede the parents.
    """
    left = list(given)
    options = _taken_serdes(left)
    if left and (_is_function(left[0]) or (left[0] is None and options)):
        options["partitioner"] = left.pop(0)
    return tuple(left), options


def global_order(*given: Any) -> GlobalOrder:
    """Return the topic, processor, supplier and options of a global store.

    In Java, a timestamp extractor and two deserializers may precede the topic.
    """
    if len(given) == 3:
        return GlobalOrder(*given, options={})
    serdes = given[-5:-3]
    if len(given) not in (5, 6) or not all(each is None or isinstance(each, Serde) for each in serdes):
        raise TypeError(
            "Expected store, source, topic, processor and supplier, and everything else by keyword; or in Java's "
            "order store, source, key serde, value serde, topic, processor and supplier. Got after the source: "
            f"{given!r}."
        )
    *extractor, key_serde, value_serde, topic, processor, supplier = given
    options: Options = {"key_serde": key_serde, "value_serde": value_serde}
    if extractor:
        options["timestamp_extractor"] = extractor[0]
    return GlobalOrder(topic, processor, supplier, options)


def merged(by_position: Options, **by_keyword: object) -> Options:
    """Return the options given by position and by keyword; raises TypeError for duplicates."""
    for name, value in by_position.items():
        if value is not None and by_keyword[name] is not None:
            raise TypeError(
                f"{name} is given twice, by position and by keyword: got {value!r} and {by_keyword[name]!r}."
            )
    return {name: value if by_position.get(name) is None else by_position[name] for name, value in by_keyword.items()}


def _taken_serdes(left: list[Any]) -> Options:
    """Remove two serdes from the beginning of `left` and return them by keyword.

    One of them may be None. If `left` does not begin with serdes, it stays as it is and the result is empty.
    """
    first = left[:2]
    if len(first) < 2 or not all(each is None or isinstance(each, Serde) for each in first) or first == [None, None]:
        return {}
    del left[:2]
    return dict(zip(("key_serde", "value_serde"), first, strict=True))


def _is_function(given: object) -> bool:
    return callable(given) and not isinstance(given, type)
