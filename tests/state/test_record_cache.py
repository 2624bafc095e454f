"""The record cache flushes, evicts and counts like Kafka's, operation by operation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.state.api import RecordContext
from penstock.state.record_cache import NamedCache, RecordCache, entry_size

CASES = [json.loads(line) for line in (Path(__file__).parent / "record_cache_cases.jsonl").read_text().splitlines()]


def context(offset: int = 0, topic: str = "topic", *headers: str) -> RecordContext:
    return RecordContext(5, tuple((name, b"hv") for name in headers), topic, 0, offset)


def text(data: bytes | None) -> str:
    return "null" if data is None else data.decode()


class Replay:
    """Two stores of one record cache, each over a dict; writes down what happens as the cases do."""

    def __init__(self, max_bytes: int) -> None:
        self.cache = RecordCache(max_bytes)
        self.below: dict[str, dict[bytes, bytes]] = {"x": {}, "y": {}}
        self.seen: list[Any] = []
        self.caches: dict[str, NamedCache] = {name: self._named(name) for name in self.below}

    def _named(self, name: str) -> NamedCache:
        def flush(keys: list[bytes], values: list[bytes | None], contexts: list[RecordContext]) -> None:
            line = f"flush {name}"
            for key, value, cause in zip(keys, values, contexts, strict=True):
                assert cause.metadata is not None
                line += f" {key.decode()}={text(value)}@{cause.metadata.offset}"
                self.below[name].pop(key, None)
                if value is not None:
                    self.below[name][key] = value
            self.seen.append(line)

        return self.cache.named_cache(name, flush)

    def run(self, offset: int, operation: str, name: str, key: str, *arguments: str) -> list[Any]:
        self.seen = []
        cache, data = self.caches[name], key.encode()
        if operation == "put":
            value = None if arguments[0] == "null" else arguments[0].encode()
            cache.put(data, value, context(offset, *arguments[1:]))
        elif operation == "get":
            entry = cache.get(data)
            value = self.below[name].get(data) if entry is None else entry[0]
            if entry is None and value is not None:
                cache.put_clean(data, value)
            self.seen.append(f"got {text(value)}")
        elif operation == "range":
            entries = "".join(f" {found.decode()}={text(value)}" for found, value in cache.range(None, None, False))
            self.seen.append(f"all{entries}")
        else:
            cache.flush()
        return [*self.seen, self.cache.size_bytes]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['max_bytes']}-bytes")
def test_it_flushes_evicts_and_counts_as_kafka_does(case: dict[str, Any]) -> None:
    """The cases were run on ThreadCache of Kafka Streams 4.3.0: what each step flushed and gave back, and the size
    after it."""
    replay = Replay(case["max_bytes"])
    for offset, (step, *expected) in enumerate(case["steps"], 1):
        assert replay.run(offset, *step.split(" ")) == expected, f"step {offset}: {step}"


def test_a_batch_evicts_when_the_task_says_so() -> None:
    replay = Replay(150)
    cache = replay.caches["x"]
    cache.put_many([b"a", b"b", b"a"], [b"1", b"2", b"3"], [context(1), context(2), context(3)])
    one_by_one = Replay(10_000)
    for number, (key, value) in enumerate([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], 1):
        one_by_one.caches["x"].put(key, value, context(number))
    assert replay.cache.size_bytes == one_by_one.cache.size_bytes
    cache.put_many([b"c"], [None], [context(4, "topic", "header")])
    assert replay.seen == []
    assert replay.cache.size_bytes == 2 * entry_size(b"a", b"1", context()) + entry_size(
        b"c", None, context(0, "topic", "header")
    )
    replay.cache.evict()
    assert replay.seen == ["flush x b=2@2 a=3@3 c=null@4"]
    assert replay.cache.size_bytes <= 150


def test_a_batch_counts_each_entry_as_one_alone() -> None:
    """Records with headers stand between others, of a topic and of a punctuation, which has none."""
    contexts = [context(1), context(2, "topic", "header"), RecordContext(5, ()), context(3), RecordContext(5, ())]
    keys = [b"%d" % number for number in range(len(contexts))]
    replay = Replay(10_000)
    replay.caches["x"].put_many(keys, [b"v"] * len(keys), contexts)
    assert replay.cache.size_bytes == sum(entry_size(key, b"v", each) for key, each in zip(keys, contexts, strict=True))


def test_closing_gives_the_bytes_back() -> None:
    replay = Replay(1000)
    replay.caches["x"].put(b"a", b"1", context())
    replay.caches["y"].put(b"a", b"1", context())
    replay.cache.close_cache("x")
    assert replay.cache.size_bytes == entry_size(b"a", b"1", context())
    with pytest.raises(RuntimeError, match="'y' already has a record cache"):
        replay.cache.named_cache("y", lambda keys, values, contexts: None)
