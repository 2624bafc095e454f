"""Columns and record sections give what a depth-first run gives, record by record: same output in the same order, same
stores."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StreamsError
from penstock.plan.broadcast import every_partition
from penstock.plan.topology import Topology
from penstock.processor import stateless
from penstock.processor.aggregate import StreamAggregate, StreamCount, StreamReduce
from penstock.processor.api import (
    BatchProcessor,
    BranchingProcessor,
    FailureHandler,
    Processor,
    ProcessorContext,
    PunctuationType,
    RowOrigin,
)
from penstock.processor.backoff import Backoff
from penstock.processor.count_window import CountWindowAdder
from penstock.processor.deduplicate import StreamDeduplicate, StreamDeduplicateById
from penstock.processor.park import ParkRules, StreamPark
from penstock.processor.stateless import (
    NullKeyFilter,
    StreamBranch,
    StreamFilter,
    StreamFlatMap,
    StreamFlatMapValues,
    StreamForeach,
    StreamMap,
    StreamMapValues,
    StreamMerge,
    StreamPeek,
    StreamSelectKey,
)
from penstock.processor.table import TableToStream
from penstock.record import Record, RecordBatch
from penstock.serdes import Serdes
from penstock.serdes.count_window import CountWindowSerde
from penstock.serdes.key_and_id import KeyAndIdSerde
from penstock.serdes.sequenced_key import SequencedKeySerde
from penstock.serdes.waiting_value import WaitingValueSerde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import KeyValueBytesStoreSupplier, WindowBytesStoreSupplier
from penstock.task import execution
from penstock.task.stream_task import StreamTask
from tests.task.topologies import LONG, STRING, batch_of, sent, supplier, task_of


class Island(Processor):
    """A node of a user: shows stream time and offset, and ticks with stream time."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(5, PunctuationType.STREAM_TIME, self.tick)

    def process(self, record: Record[Any, Any]) -> None:
        metadata = self.context.record_metadata
        offset = None if metadata is None else metadata.offset
        self.context.forward(record.with_value(f"{record.value}@{self.context.current_stream_time_ms()}/{offset}"))

    def tick(self, time: int) -> None:
        self.context.forward(Record("tick", str(time), time))


KINDS = {
    "filter": lambda: StreamFilter(lambda k, v: "a" not in (v or "")),
    "twice": lambda: StreamFlatMapValues(lambda v: [v, f"{v}2"], False),
    "letters": lambda: StreamFlatMap(lambda k, v: ((letter, v) for letter in (v or ""))),
    "upper": lambda: StreamMapValues(lambda v: None if v is None else v.upper(), False),
    "swap": lambda: StreamMap(lambda k, v: (v, k)),
    "key": lambda: StreamSelectKey(lambda k, v: v),
    "peek": lambda: StreamPeek(lambda k, v: None),
    "keyed": NullKeyFilter,
    "merge": StreamMerge,
    "island": Island,
}
ELSEWHERE = {StreamBranch, StreamForeach}
"""Operators that are no kind: one with several children ("split"), and one without results."""

WINDOWS = CountWindowAdder(3, lambda: 0, lambda k, v, a: a + 1)

STATEFUL = {
    "count": lambda store: StreamCount(store),
    "reduce": lambda store: StreamReduce(store, lambda a, b: a + 1),
    "aggregate": lambda store: StreamAggregate(store, lambda: 0, lambda k, v, a: None if a == 2 else a + 1),
    "expiring": lambda store: StreamAggregate(store, lambda: 0, lambda k, v, a: a + 1, True),
    "windows": lambda store: StreamAggregate(store, WINDOWS.initial, WINDOWS),
}

UNIQUE = {
    "unique": lambda store: StreamDeduplicate(store, 5),
    "unique-values": lambda store: StreamDeduplicateById(store, 5, lambda key, value: value or None),
}
"""Deduplications; the keys of their stores are texts, or pairs of texts."""

PARK = ParkRules(Backoff(10), attempts=2, writes_dead_letters=False, max_records=1_000, max_bytes=1_000_000)


def charged(value: str | None) -> str | None:
    """Fail for some values, for an operator that parks their records."""
    if "b" in (value or ""):
        raise ConnectionError(value)
    return value


Node = tuple[str, list[int], bool]


@st.composite
def shapes(draw: st.DrawFn) -> list[Node]:
    """Nodes as (kind, numbers of parents, whether a sink hangs on it); parent 0 is the source."""
    nodes: list[Node] = []
    for number in range(1, draw(st.integers(1, 7)) + 1):
        kind = draw(st.sampled_from([*KINDS, *UNIQUE, "count", "aggregate", "expiring", "windows", "split", "park"]))
        parents = draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=2, unique=True))
        nodes.append((kind, parents, draw(st.booleans()) or number == 1))
    return nodes


def build(nodes: list[Node], caching: bool) -> Topology:
    topology = Topology()
    topology.add_source("N0", "in")
    for number, (kind, parents, sink) in enumerate(nodes, 1):
        name, parent_names = f"N{number}", [f"N{parent}" for parent in parents]
        if kind in STATEFUL:
            store = f"S{number}"
            make = STATEFUL[kind]
            topology.add_processor(f"{name}-a", supplier(partial(make, store)), *parent_names)
            values = CountWindowSerde(LONG) if kind == "windows" else LONG
            entries = StoreBuilder(KeyValueBytesStoreSupplier(store, True), STRING, values, True, caching)
            topology.add_state_store(entries.with_ttl(7) if kind == "expiring" else entries, f"{name}-a")
            topology.add_processor(f"{name}-t", supplier(TableToStream), f"{name}-a")
            topology.add_processor(
                name, supplier(lambda: StreamMapValues(lambda v: None if v is None else str(v), False)), f"{name}-t"
            )
        elif kind in UNIQUE:
            store = f"S{number}"
            topology.add_processor(name, supplier(partial(UNIQUE[kind], store)), *parent_names)
            window = WindowBytesStoreSupplier(store, 6, 6, retain_duplicates=False, in_memory=caching)
            keys = STRING if kind == "unique" else KeyAndIdSerde(STRING, STRING)
            topology.add_state_store(StoreBuilder(window, keys, Serdes.boolean()), name)
        elif kind == "park":
            waiting = StoreBuilder(
                KeyValueBytesStoreSupplier(f"S{number}", True), SequencedKeySerde(STRING), WaitingValueSerde(STRING)
            )
            make_park = partial(StreamPark, partial(StreamMapValues, charged, False), f"S{number}", PARK)
            topology.add_processor(name, supplier(make_park), *parent_names)
            topology.add_state_store(waiting, name)
        elif kind == "split":
            branches = [f"{name}-{branch}" for branch in "xyz"]
            predicates = [lambda k, v: k == "k", lambda k, v: "b" in (v or "")]
            topology.add_processor(f"{name}-s", supplier(partial(StreamBranch, predicates, branches)), *parent_names)
            for branch in branches:
                topology.add_processor(branch, supplier(StreamMerge), f"{name}-s")
            topology.add_sink(f"K{number}-y", "shared", branches[1])
            topology.add_processor(name, supplier(StreamMerge), *branches)
        else:
            topology.add_processor(name, supplier(KINDS[kind]), *parent_names)
        if sink:
            copied = every_partition if number % 3 == 0 else None
            topology.add_sink(f"K{number}", "shared" if number % 2 else f"out{number}", name, partitioner=copied)
    return topology


rows = st.lists(
    st.tuples(st.sampled_from(["k", "l", None]), st.sampled_from(["a", "b", "bc", "", None]), st.integers(0, 30)),
    max_size=12,
)


def outcome(task: StreamTask, batches: list[Any]) -> tuple[Any, Any]:
    offset = 0
    output = []
    for batch in batches:
        task.add_records("in", 0, batch_of(*batch, first_offset=offset))
        task.process()
        offset += len(batch)
        output += sent(task)
    task.flush()
    return output + sent(task), task.changes()


def test_each_stateless_operator_is_a_kind() -> None:
    operators = {
        kind
        for _, kind in inspect.getmembers(stateless, inspect.isclass)
        if kind.__module__ == stateless.__name__ and issubclass(kind, BatchProcessor | BranchingProcessor)
    }
    kinds = {type(make()) for make in KINDS.values()}
    assert operators - kinds == ELSEWHERE, "add the operator to KINDS, so that both executions are compared"


@given(shapes(), rows, st.booleans())
def test_columns_give_what_records_give(nodes: list[Node], records: list[Any], caching: bool) -> None:
    topology = build(nodes, caching)
    cache_bytes = 10_000_000 if caching else 0
    by_column = outcome(task_of(topology, cache_bytes=cache_bytes, partitions=3), [records])
    by_record = outcome(task_of(topology, execution="record", cache_bytes=cache_bytes, partitions=3), [records])
    assert by_column == by_record


@given(shapes(), rows, st.lists(st.integers(1, 4), min_size=1), st.booleans(), st.integers(0, 4))
def test_the_size_of_batches_changes_nothing(
    nodes: list[Node], records: list[Any], sizes: list[int], caching: bool, fewest_rows: int
) -> None:
    topology = build(nodes, caching)
    cache_bytes = 10_000_000 if caching else 0
    parts: list[Any] = []
    start = 0
    while start < len(records):
        size = sizes[len(parts) % len(sizes)]
        parts.append(records[start : start + size])
        start += size
    whole = outcome(task_of(topology, cache_bytes=cache_bytes), [records])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "FEWEST_ROWS", fewest_rows)
        assert outcome(task_of(topology, cache_bytes=cache_bytes), parts) == whole


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_a_failing_function_is_named_with_its_node_record_and_line(execution: str) -> None:
    def explode(value: str) -> str:
        if value == "bad":
            raise LookupError("no such thing")
        return value

    topology = Topology()
    topology.add_source("S", "in")
    topology.add_processor("M", supplier(lambda: StreamMapValues(explode, False)), "S")
    topology.add_sink("K", "out", "M")
    task = task_of(topology, execution=execution)
    task.add_records("in", 0, batch_of(("k", "ok", 1), ("k", "bad", 2), first_offset=40))
    with pytest.raises(StreamsError) as caught:
        task.process()
    assert str(caught.value) == (
        "Exception caught in process. taskId=0_0, processor=M, topic=in, partition=0, offset=41"
    )
    assert isinstance(caught.value.__cause__, LookupError)
    (note,) = caught.value.__notes__
    assert "test_execution.py" in note
    assert 'raise LookupError("no such thing")' in note


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_no_row_is_run_twice_and_a_stop_iteration_is_an_error(execution: str) -> None:
    calls: list[str] = []

    def run_out(value: str) -> str:
        calls.append(value)
        if value == "c":
            raise StopIteration
        return value

    topology = Topology()
    topology.add_source("S", "in")
    topology.add_processor("M", supplier(lambda: StreamMapValues(run_out, False)), "S")
    topology.add_sink("K", "out", "M")
    task = task_of(topology, execution=execution)
    task.add_records("in", 0, batch_of(*(("k", letter, 1) for letter in "abcd")))
    with pytest.raises(StreamsError, match="processor=M, topic=in, partition=0, offset=2"):
        task.process()
    assert calls == ["a", "b", "c"]


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_predicates_of_a_split_are_asked_in_turn_for_each_record(execution: str) -> None:
    asked: list[tuple[str, str]] = []

    def predicate(name: str, key: str, value: str) -> bool:
        asked.append((name, value))
        if value == name + "!":
            raise LookupError(value)
        return value == name

    topology = Topology()
    topology.add_source("S", "in")
    predicates = [partial(predicate, "a"), partial(predicate, "b")]
    topology.add_processor("B", supplier(partial(StreamBranch, predicates, ["A1", "B1"])), "S")
    for branch, target in (("A1", "one"), ("B1", "two")):
        topology.add_processor(branch, supplier(StreamMerge), "B")
        topology.add_sink(f"K{branch}", target, branch)
    task = task_of(topology, execution=execution)
    task.add_records("in", 0, batch_of(*(("k", value, 1) for value in ("b", "a", "neither", "b!", "a!"))))
    with pytest.raises(StreamsError, match="processor=B, topic=in, partition=0, offset=3"):
        task.process()
    assert "".join(f"{name}:{value} " for name, value in asked) == "a:b b:b a:a a:neither b:neither a:b! b:b! "


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_what_follows_a_split_is_run_by_columns(execution: str) -> None:
    batches: list[int] = []

    class Counting(StreamMerge):
        def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
            batches.append(len(batch))
            return super().process_batch(batch, failures)

    topology = Topology()
    topology.add_source("S", "in")
    topology.add_processor("B", supplier(partial(StreamBranch, [lambda k, v: v < "c"], ["low", "high"])), "S")
    for branch in ("low", "high"):
        topology.add_processor(branch, supplier(Counting), "B")
        topology.add_sink(f"K-{branch}", branch, branch)
    task = task_of(topology, execution=execution)
    task.add_records("in", 0, batch_of(*(("k", value, 1) for value in "adbec")))
    task.process()
    assert [(topic, value) for topic, _, value, _ in sent(task)] == [
        ("low", "a"), ("high", "d"), ("low", "b"), ("high", "e"), ("high", "c"),
    ]  # fmt: skip
    assert batches == ([2, 3] if execution == "auto" else [])


def test_few_rows_are_run_record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "FEWEST_ROWS", 3)
    batches: list[int] = []

    class Counting(StreamMerge):
        def process_batch(self, batch: RecordBatch, failures: FailureHandler) -> tuple[RecordBatch, RowOrigin]:
            batches.append(len(batch))
            return super().process_batch(batch, failures)

    topology = Topology()
    topology.add_source("S", "in")
    topology.add_processor("P", supplier(Counting), "S")
    topology.add_processor("count", supplier(lambda: StreamCount("store")), "P")
    topology.add_state_store(StoreBuilder(KeyValueBytesStoreSupplier("store", True), STRING, LONG, True, True), "count")
    topology.add_sink("K", "out", "P")
    task = task_of(topology, cache_bytes=1_000_000)
    for count in (2, 3):
        task.add_records("in", 0, batch_of(*(("k", "v", 1) for _ in range(count))))
        task.process()
        task.flush()
    assert batches == [3]
    assert len(sent(task)) == 5


class Watching(Processor):
    """Works record by record: keeps the values it sees, and fails without a key."""

    def __init__(self, seen: list[Any]) -> None:
        self._seen = seen

    def process(self, record: Record[Any, Any]) -> None:
        self._seen.append(record.value)
        if record.key is None:
            raise LookupError("no key")


@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize(
    ("keys", "seen", "failed"), [("abc", ["1", "2", "bad"], "M"), ("a--", ["1", "2"], "W"), ("---", ["1"], "W")]
)
def test_what_comes_before_a_failing_row_is_run_and_may_fail_first(
    execution: str, keys: str, seen: list[str], failed: str
) -> None:
    def refuse(value: str) -> str:
        if value == "bad":
            raise ValueError(value)
        return value

    watched: list[Any] = []
    topology = Topology()
    topology.add_source("S", "in")
    topology.add_processor("W", supplier(lambda: Watching(watched)), "S")
    topology.add_processor("M", supplier(lambda: StreamMapValues(refuse, False)), "S")
    topology.add_sink("K", "out", "M", "W")
    task = task_of(topology, execution=execution)
    rows = zip(keys, ["1", "2", "bad"], strict=True)
    task.add_records("in", 0, batch_of(*((None if key == "-" else key, value, 1) for key, value in rows)))
    offset = len(seen) - 1
    with pytest.raises(StreamsError, match=f"processor={failed}, topic=in, partition=0, offset={offset}"):
        task.process()
    assert watched == seen
