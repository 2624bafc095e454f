"""The fixed vocabulary of user functions: FORMAT.md section 5, in its order.

Each maker takes the arguments of the case and returns the function, which takes (key, value) unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import Headers, RecordContext
from penstock.processor.timestamps import (
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
)
from penstock.record import ConsumerRecord
from tests.oracle.interpreter.values import long, number, text
from tests.oracle.interpreter.vocabulary import Words

Function = Callable[..., Any]
Makers = dict[str, Callable[..., Any]]


def refused(value: Any) -> RuntimeError:
    """Return the error of every function that refuses a value."""
    return RuntimeError(f"refused {text(value)}")


def _first(value: Any) -> str | None:
    return text(value)[:1] or None if value is not None else None


def _after_pipe(value: Any) -> str | None:
    return text(value).partition("|")[2] or None if value is not None else None


def _words(value: Any) -> list[str]:
    return [word for word in text(value).split(" ") if word] if value is not None else []


def _length(value: Any) -> int:
    return -1 if value is None else len(text(value))


def _refuse_value(part: str) -> Function:
    def refuse(_: Any, value: Any) -> Any:
        if part in text(value):
            raise refused(value)
        return value

    return refuse


def _refuse_or_true(part: str) -> Function:
    refuse = _refuse_value(part)

    def predicate(key: Any, value: Any) -> bool:
        refuse(key, value)
        return True

    return predicate


# 5.1
PREDICATES = Words(
    "predicate",
    {
        "always": lambda: lambda k, v: True,
        "never": lambda: lambda k, v: False,
        "value_not_null": lambda: lambda k, v: v is not None,
        "value_is_null": lambda: lambda k, v: v is None,
        "key_not_null": lambda: lambda k, v: k is not None,
        "value_contains": lambda a: lambda k, v: a in text(v),
        "value_is": lambda a: lambda k, v: text(v) == a,
        "key_is": lambda a: lambda k, v: text(k) == a,
        "value_shorter_than": lambda n: lambda k, v: len(text(v)) < n,
        "value_below": lambda n: lambda k, v: v is not None and v < n,
        "value_even": lambda: lambda k, v: v is not None and v % 2 == 0,
        "refuse": _refuse_or_true,
    },
)

# 5.2
VALUE_MAPPERS = Words(
    "value mapper",
    {
        "identity": lambda: lambda k, v: v,
        "to_null": lambda: lambda k, v: None,
        "to_text": lambda: lambda k, v: text(v),
        "append": lambda a: lambda k, v: text(v) + a,
        "prepend": lambda a: lambda k, v: a + text(v),
        "upper": lambda: lambda k, v: None if v is None else text(v).upper(),
        "length": lambda: lambda k, v: _length(v),
        "null_if": lambda a: lambda k, v: None if text(v) == a else v,
        "null_if_contains": lambda a: lambda k, v: None if a in text(v) else v,
        "plus": lambda n: lambda k, v: None if v is None else long(v + n),
        "key_and_value": lambda: lambda k, v: f"{text(k)}:{text(v)}",
        "before_pipe": lambda: lambda k, v: None if v is None else text(v).partition("|")[0],
        "refuse": _refuse_value,
    },
)

# 5.3
FLAT_VALUE_MAPPERS = Words(
    "flat value mapper",
    {
        "words": lambda: lambda k, v: _words(v),
        "twice": lambda: lambda k, v: [v, v],
        "none": lambda: lambda k, v: [],
        "null_list": lambda: lambda k, v: None,
        "characters": lambda: lambda k, v: [] if v is None else list(text(v)),
        "key_then_value": lambda: lambda k, v: [text(k), text(v)],
    },
)

# 5.4
PAIR_MAPPERS = Words(
    "pair mapper",
    {
        "same": lambda: lambda k, v: (k, v),
        "swap": lambda: lambda k, v: (v, k),
        "value_twice": lambda: lambda k, v: (v, v),
        "key_by_first_character": lambda: lambda k, v: (_first(v), v),
        "key_by_pipe": lambda: lambda k, v: (_after_pipe(v), v),
        "append_both": lambda a: lambda k, v: (text(k) + a, text(v) + a),
        "key_append": lambda a: lambda k, v: (text(k) + a, v),
        "key_constant": lambda a: lambda k, v: (a, v),
        "null_key": lambda: lambda k, v: (None, v),
        "null_value": lambda: lambda k, v: (k, None),
        "null_pair_if": lambda a: lambda k, v: None if a in text(v) else (k, v),
        "null_key_if": lambda a: lambda k, v: (None if a in text(v) else _first(v), v),
        "null_value_if": lambda a: lambda k, v: (_first(v), None if a in text(v) else v),
        "value_length": lambda: lambda k, v: (_first(v), _length(v)),
        "unwindow": lambda: lambda k, v: (k.key, v),
    },
)

# 5.5
FLAT_PAIR_MAPPERS = Words(
    "flat pair mapper",
    {
        "words_as_keys": lambda: lambda k, v: [(word, v) for word in _words(v)],
        "both_ways": lambda: lambda k, v: [(k, v), (v, k)],
        "twice": lambda: lambda k, v: [(k, v), (k, v)],
        "none": lambda: lambda k, v: [],
        "null_list": lambda: lambda k, v: None,
    },
)

# 5.6
KEY_SELECTORS = Words(
    "key selector",
    {
        "key": lambda: lambda k, v: k,
        "value": lambda: lambda k, v: v,
        "first_character": lambda: lambda k, v: _first(v),
        "after_pipe": lambda: lambda k, v: _after_pipe(v),
        "null": lambda: lambda k, v: None,
        "constant": lambda a: lambda k, v: a,
        "key_text": lambda: lambda k, v: text(k),
        "append": lambda a: lambda k, v: text(k) + a,
        "null_if_value_contains": lambda a: lambda k, v: None if a in text(v) else k,
        "unwindow": lambda: lambda k, v: k.key,
        "window_start": lambda: lambda k, v: f"{text(k.key)}@{k.window.start}",
    },
)

# 5.8, (aggregate, value)
REDUCERS = Words(
    "reducer",
    {
        "concat": lambda: lambda a, b: f"{text(a)}+{text(b)}",
        "concat_minus": lambda: lambda a, b: f"{text(a)}-{text(b)}",
        "first": lambda: lambda a, b: a,
        "latest": lambda: lambda a, b: b,
        "sum": lambda: lambda a, b: long(number(a) + number(b)),
        "difference": lambda: lambda a, b: long(number(a) - number(b)),
        "longer": lambda: lambda a, b: b if len(text(b)) > len(text(a)) else a,
        "null_if": lambda x: lambda a, b: None if x in text(b) else f"{text(a)}+{text(b)}",
    },
)

# 5.9
INITIALIZERS = Words(
    "initializer",
    {"empty": lambda: lambda: "", "zero": lambda: lambda: 0, "null": lambda: lambda: None, "text": lambda a: lambda: a},
)


def _refuse_or_append(part: str) -> Function:
    def aggregate(_: Any, value: Any, current: Any) -> str:
        if part in text(value):
            raise refused(value)
        return f"{text(current)}+{text(value)}"

    return aggregate


# 5.9, (key, value, aggregate)
AGGREGATORS = Words(
    "aggregator",
    {
        "append": lambda: lambda k, v, agg: f"{text(agg)}+{text(v)}",
        "append_minus": lambda: lambda k, v, agg: f"{text(agg)}-{text(v)}",
        "append_with_key": lambda: lambda k, v, agg: f"{text(agg)},{text(k)}={text(v)}",
        "append_with_key_minus": lambda: lambda k, v, agg: f"{text(agg)},-{text(k)}={text(v)}",
        "count": lambda: lambda k, v, agg: long(number(agg) + 1),
        "count_minus": lambda: lambda k, v, agg: long(number(agg) - 1),
        "sum": lambda: lambda k, v, agg: long(number(agg) + number(v)),
        "difference": lambda: lambda k, v, agg: long(number(agg) - number(v)),
        "sum_length": lambda: lambda k, v, agg: long(number(agg) + len(text(v))),
        "sum_length_minus": lambda: lambda k, v, agg: long(number(agg) - len(text(v))),
        "latest": lambda: lambda k, v, agg: v,
        "null_if": lambda a: lambda k, v, agg: None if a in text(v) else f"{text(agg)}+{text(v)}",
        "refuse": _refuse_or_append,
    },
)


class NamedTopicExtractor:
    """A topic extractor that describe() shows by the name of its function."""

    def __init__(self, name: str, function: Function) -> None:
        self._name = name
        self._function = function

    def __call__(self, key: Any, value: Any, context: RecordContext) -> str:
        """Return the topic to send to."""
        topic: str = self._function(key, value, context)
        return topic

    def __str__(self) -> str:
        return self._name


def _topic_extractors(makers: Makers) -> Makers:
    return {name: (lambda *a, name=name: NamedTopicExtractor(name, makers[name](*a))) for name in makers}


# 5.11
TOPIC_EXTRACTORS = Words(
    "topic extractor",
    _topic_extractors(
        {
            "by_key": lambda prefix: lambda k, v, context: prefix + text(k),
            "by_value": lambda a, yes, no: lambda k, v, context: yes if a in text(v) else no,
            "by_source_topic": lambda: lambda k, v, context: f"copy-of-{context.topic}",
            "by_offset_parity": lambda even, odd: lambda k, v, context: even if context.offset % 2 == 0 else odd,
            "by_header": lambda name, other: lambda k, v, context: _last_header(context.headers, name, other),
            "by_timestamp": lambda n, early, late: lambda k, v, context: early if context.timestamp < n else late,
        }
    ),
)


def _last_header(headers: Headers, name: str, other: str) -> str:
    values = [value for each, value in headers if each == name]
    return values[-1].decode() if values and values[-1] is not None else other


def _after_at(record: ConsumerRecord, partition_time: int) -> int:
    _, at, time = text(record.value).partition("@")
    return int(time) if at else record.timestamp


# 5.12; `wallclock` reads the real clock, so no case uses it
TIMESTAMP_EXTRACTORS = Words(
    "timestamp extractor",
    {
        "fail_on_invalid": lambda: fail_on_invalid_timestamp,
        "log_and_skip_on_invalid": lambda: log_and_skip_on_invalid_timestamp,
        "use_partition_time_on_invalid": lambda: use_partition_time_on_invalid_timestamp,
        "after_at": lambda: _after_at,
        "at_header": lambda name: (
            lambda record, partition_time: int(_last_header(record.headers, name, str(record.timestamp)))
        ),
        "partition_time": lambda: lambda record, partition_time: partition_time,
    },
)


def _drop_if_header(name: str, dropped: str) -> Callable[[str, Any, Any, Headers, int], set[int]]:
    def partitioner(topic: str, key: Any, value: Any, headers: Headers, partitions: int) -> set[int]:
        return set() if _last_header(headers, name, "") == dropped else {0}

    return partitioner


# 5.13, (topic, key, value, number of partitions), or with the headers before the number
PARTITIONERS = Words(
    "partitioner",
    {
        "zero": lambda: lambda topic, k, v, partitions: {0},
        "default": lambda: lambda topic, k, v, partitions: None,
        "drop_if_contains": lambda a: lambda topic, k, v, partitions: set() if a in text(v) else {0},
        "drop_if_header": _drop_if_header,
        "all": lambda: lambda topic, k, v, partitions: set(range(partitions)),
        "several": lambda: lambda topic, k, v, partitions: {0, 1, 2},
    },
)
