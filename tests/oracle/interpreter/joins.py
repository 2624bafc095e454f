"""The joins: options, joiners and foreign key extractors of cases (FORMAT.md sections 4, 5.7 and 5.10), and the
operations by the kind of the left side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock import (
    GlobalKTable,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Serde,
    StreamJoined,
    TableJoined,
)
from tests.oracle.interpreter import functions
from tests.oracle.interpreter.operation import Operation
from tests.oracle.interpreter.options import MATERIALIZED
from tests.oracle.interpreter.serdes import SERDES
from tests.oracle.interpreter.stores import STORE_SUPPLIER
from tests.oracle.interpreter.values import long, number, text
from tests.oracle.interpreter.vocabulary import PLAIN, Choice, Fields, Reader, Words


def _plus(_: Any, left: Any, right: Any) -> str:
    return f"{text(left)}+{text(right)}"


def _pair(_: Any, left: Any, right: Any) -> str:
    return f"({text(left)},{text(right)})"


def _refuse(part: str) -> Callable[[Any, Any, Any], str]:
    def joiner(key: Any, left: Any, right: Any) -> str:
        if part in text(left) or part in text(right):
            raise functions.refused(left)
        return _plus(key, left, right)

    return joiner


# 5.10, (key, left, right)
JOINERS = Words(
    "joiner",
    {
        "plus": lambda: _plus,
        "pair": lambda: _pair,
        "key_pair": lambda: lambda k, left, right: f"{text(k)}:{_pair(k, left, right)}",
        "left": lambda: lambda k, left, right: left,
        "right": lambda: lambda k, left, right: right,
        "sum": lambda: lambda k, left, right: long(number(left) + number(right)),
        "null_if_left": lambda a: lambda k, left, right: None if a in text(left) else _plus(k, left, right),
        "refuse": _refuse,
    },
)

# 5.7
FOREIGN_KEYS = Words(
    "foreign key extractor",
    {
        "after_pipe": functions.KEY_SELECTORS.makers["after_pipe"],
        "value": lambda: lambda k, v: v,
        "key_first_character": lambda: lambda k, v: text(k)[:1] or None if k is not None else None,
        "always_null": lambda: lambda k, v: None,
    },
)


def _join_windows(
    difference: int, grace: int | None = None, before: int | None = None, after: int | None = None
) -> JoinWindows:
    windows = (
        JoinWindows.of_time_difference_with_no_grace(difference)
        if grace is None
        else JoinWindows.of_time_difference_and_grace(difference, grace)
    )
    if before is not None:
        windows = windows.before(before)
    return windows if after is None else windows.after(after)


def _joined(grace: int | None = None, **fields: Any) -> Joined:
    return Joined.with_(**fields, grace_period_ms=grace)


def _stream_joined(
    key_serde: Serde | None = None,
    value_serde: Serde | None = None,
    other_value_serde: Serde | None = None,
    name: str | None = None,
    store_name: str | None = None,
    this_store: Any = None,
    other_store: Any = None,
    store_type: str | None = None,
    logging: bool | None = None,
) -> StreamJoined:
    result = StreamJoined.with_(
        key_serde=key_serde,
        value_serde=value_serde,
        other_value_serde=other_value_serde,
        this_store_supplier=this_store,
        other_store_supplier=other_store,
        store_type=store_type,
    )
    if name is not None:
        result = result.with_name(name)
    if store_name is not None:
        result = result.with_store_name(store_name)
    if logging is not None:
        result = result.with_logging_enabled({}) if logging else result.with_logging_disabled()
    return result


_SERDES = {"key_serde": SERDES, "value_serde": SERDES, "other_value_serde": SERDES}
_WINDOWS = Fields("join windows", {"difference": PLAIN, "grace": PLAIN, "before": PLAIN, "after": PLAIN}, _join_windows)
_JOINED = Fields("joined", {**_SERDES, "name": PLAIN, "grace": PLAIN}, _joined)
_STREAM_JOINED = Fields(
    "stream_joined",
    {
        **_SERDES,
        "name": PLAIN,
        "store_name": PLAIN,
        "this_store": STORE_SUPPLIER,
        "other_store": STORE_SUPPLIER,
        "store_type": Choice("store type", ("in_memory", "rocksdb")),
        "logging": PLAIN,
    },
    _stream_joined,
)
_TABLE_JOINED = Fields(
    "table_joined",
    {"name": PLAIN, "partitioner": functions.PARTITIONERS, "other_partitioner": functions.PARTITIONERS},
    lambda name, partitioner=None, other_partitioner=None: TableJoined.with_(partitioner, other_partitioner).with_name(
        name
    ),
)

_STREAM_FIELDS: Mapping[str, Reader] = {
    "joiner": JOINERS,
    "with_key": PLAIN,
    "with_mapped_key": PLAIN,
    "windows": _WINDOWS,
    "stream_joined": _STREAM_JOINED,
    "joined": _JOINED,
    "key_selector": functions.KEY_SELECTORS,
    "named": PLAIN,
}
_TABLE_FIELDS: Mapping[str, Reader] = {"joiner": JOINERS, "named": PLAIN, "materialized": MATERIALIZED}
_FOREIGN_KEY_FIELDS: Mapping[str, Reader] = {
    "joiner": JOINERS,
    "foreign_key": FOREIGN_KEYS,
    "extractor_with_key": PLAIN,
    "table_joined": _TABLE_JOINED,
    "materialized": MATERIALIZED,
}


def _without_key(joiner: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda left, right: joiner(None, left, right)


def _with_mapped_key(joiner: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any, Any], Any]:
    return lambda key, mapped_key, left, right: joiner(f"{text(key)}/{text(mapped_key)}", left, right)


def _stream_join(method: Callable[..., Any]) -> Operation:
    def apply(
        left: KStream,
        right: KStream | KTable | GlobalKTable,
        joiner: Any,
        with_key: bool = False,
        with_mapped_key: bool = False,
        **fields: Any,
    ) -> KStream:
        given = _with_mapped_key(joiner) if with_mapped_key else joiner if with_key else _without_key(joiner)
        result: KStream = method(left, right, given, **fields)
        return result

    return Operation(apply, _STREAM_FIELDS, "KStream", "left", ("right",))


def _table_join(method: Callable[..., Any]) -> Operation:
    def apply(left: KTable, right: KTable, joiner: Any, **fields: Any) -> KTable:
        result: KTable = method(left, right, _without_key(joiner), **fields)
        return result

    return Operation(apply, _TABLE_FIELDS, "KTable", "left", ("right",))


def _foreign_key_join(method: Callable[..., Any]) -> Operation:
    def apply(
        left: KTable, right: KTable, joiner: Any, foreign_key: Any, extractor_with_key: bool = False, **fields: Any
    ) -> KTable:
        extractor = foreign_key if extractor_with_key else lambda value: foreign_key(None, value)
        result: KTable = method(left, right, _without_key(joiner), foreign_key_extractor=extractor, **fields)
        return result

    return Operation(apply, _FOREIGN_KEY_FIELDS, "KTable", "left", ("right",))


JOINS: Mapping[tuple[str, str], Operation] = {
    ("KStream", "join"): _stream_join(KStream.join),
    ("KStream", "left_join"): _stream_join(KStream.left_join),
    ("KStream", "outer_join"): _stream_join(KStream.outer_join),
    ("KTable", "join"): _table_join(KTable.join),
    ("KTable", "left_join"): _table_join(KTable.left_join),
    ("KTable", "outer_join"): _table_join(KTable.outer_join),
    ("KTable", "foreign_key_join"): _foreign_key_join(KTable.join),
    ("KTable", "foreign_key_left_join"): _foreign_key_join(KTable.left_join),
}
