"""What the result of a case on running threads may differ in from that of Kafka's test driver.

The driver runs all sub-topologies as one task, and each record to its end. Running threads have a task for each
sub-topology, in Kafka Streams too, and a topic between them. So where a case has several sub-topologies, this is
compared for each step:

- errors, internal topics and stores: as on the driver;
- a topic to which a table is written: the last value of each key, because caches and the order of tasks decide about
  those before;
- a topic to which streams are written: the same records, and those of a key in the same order if one sink writes them.

A case with one sub-topology is compared as on the driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from tests.oracle.interpreter.comparison import differences

Row = Sequence[Any]


def differences_of_order(case: Mapping[str, Any], expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Return one line for each difference that the order of tasks does not explain."""
    if str(case.get("expected", {}).get("describe", "")).count("Sub-topology: ") < 2:
        return differences(expected, actual)
    rest = [{**each, "steps": []} for each in (expected, actual)]
    steps = zip_longest(expected.get("steps", []), actual.get("steps", []), fillvalue=())
    found = [f"step {number}, {line}" for number, pair in enumerate(steps) for line in _of_step(case, *pair)]
    return differences(*rest) + found


def _of_step(case: Mapping[str, Any], expected: Iterable[Row], actual: Iterable[Row]) -> Iterator[str]:
    left, right = _by_topic(expected), _by_topic(actual)
    for topic in sorted({*left, *right}):
        before, after = left.get(topic, []), right.get(topic, [])
        if _has_updates(case, topic):
            same, what = _last(before) == _last(after), "last values"
        elif _has_one_sink(case, topic):
            same, what = _by_key(before) == _by_key(after), "records of a key"
        else:
            same, what = Counter(map(repr, before)) == Counter(map(repr, after)), "records"
        if not same:
            yield f"topic {topic}, {what}: expected {before!r:.300}, got {after!r:.300}"


def _by_topic(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def _by_key(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(repr(row[1]), []).append(row)
    return found


def _last(rows: Iterable[Row]) -> dict[str, Row]:
    return {repr(row[1]): row for row in rows}


def _sinks(case: Mapping[str, Any], topic: str) -> list[Mapping[str, Any]]:
    return [entry for entry in case["topology"] if entry["op"] in ("to", "add_sink") and entry.get("topic") == topic]


def _has_one_sink(case: Mapping[str, Any], topic: str) -> bool:
    return len(_sinks(case, topic)) == 1


def _has_updates(case: Mapping[str, Any], topic: str) -> bool:
    """Return whether a sink of `topic` gets the updates of a table, perhaps changed on their way. The table that a
    stream is joined with is not on it."""
    by_id = {entry.get("id"): entry for entry in case["topology"]}
    left, seen = list(_sinks(case, topic)), set[str]()
    while left:
        entry = left.pop()
        if entry["op"] == "to_stream":
            return True
        for name in ("from", "left", *(("right",) if entry["op"] == "merge" else ())):
            parent = entry.get(name)
            if isinstance(parent, str) and parent in by_id and parent not in seen:
                seen.add(parent)
                left.append(by_id[parent])
    return False
