"""Deduplication: a model in plain Python, the limits of the interval, and restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Deduplicated, KStream, Serdes, StreamsBuilder, Topology
from penstock.errors import StreamsError
from penstock.metrics.drop_reasons import DropReason
from penstock.state.api import Base
from penstock.state.memory import MemoryBase
from penstock.task import execution
from penstock.task.stream_task import StreamTask
from penstock.testing import TopologyTestDriver
from tests.support.tables import Row
from tests.task.topologies import STRING, batch_of, sent, task_of

INTERVAL_MS = 100
STORE = "seen"

EXECUTIONS = pytest.mark.parametrize("execution", ["auto", "record"])
SHAPES = pytest.mark.parametrize("by_id", [False, True], ids=["by_key", "by_key_value"])


@pytest.fixture(scope="module", autouse=True)
def columns_of_any_size() -> Iterator[None]:
    """Few rows run column by column, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "FEWEST_ROWS", 0)
        yield


def unique(by_id: bool, interval_ms: int = INTERVAL_MS) -> Topology:
    """Return a topology from `in` to `out`; the id of a record is its value."""
    return topology(lambda stream: deduplicated(stream, by_id, interval_ms))


def deduplicated(stream: KStream, by_id: bool, interval_ms: int = INTERVAL_MS) -> KStream:
    options = Deduplicated.as_(STORE)
    if not by_id:
        return stream.deduplicate_by_key(interval_ms, options)
    return stream.deduplicate_by_key_value(lambda key, value: value, interval_ms, options.with_id_serde(STRING))


def topology(shape: Callable[[KStream], KStream]) -> Topology:
    builder = StreamsBuilder()
    shape(builder.stream("in")).to("out")
    return builder.build()


def model(rows: Sequence[Row], by_id: bool) -> list[Row]:
    """Return the records that are no duplicates, by the code of apache/kafka pull request 22189."""
    observed = -1
    stored: dict[Any, int] = {}
    forwarded: list[Row] = []
    for key, value, timestamp in rows:
        observed = max(observed, timestamp)
        id = value if by_id else key
        if key is None or id is None:
            forwarded.append((key, value, timestamp))
            continue
        first = stored.get((key, id))
        if first is None or observed - first > INTERVAL_MS or first - timestamp > INTERVAL_MS:
            forwarded.append((key, value, timestamp))
            if timestamp >= observed - INTERVAL_MS:
                stored[key, id] = timestamp
    return forwarded


rows = st.lists(
    st.tuples(st.sampled_from(["k", "l", None]), st.sampled_from(["a", "b", None]), st.integers(0, 450)), max_size=30
)


class Restarting:
    """A task that continues from its last commit as often as the test asks."""

    def __init__(self, topology: Topology, execution: str, **config: Any) -> None:
        self._topology, self._execution, self._config = topology, execution, config
        self.base: Base = MemoryBase()
        self._checkpoint: Any = None
        self._offset = 0
        self._task = self._open()
        self.output: list[Row] = []
        self.dropped = 0

    def _open(self) -> StreamTask:
        return task_of(
            self._topology,
            execution=self._execution,
            base=self.base,
            checkpoint=self._checkpoint,
            config=self._config,
        )

    def take(self, part: Sequence[Row]) -> None:
        self._task.add_records("in", 0, batch_of(*part, first_offset=self._offset))
        self._task.process()
        self._offset += len(part)
        self.output += [record[1:] for record in sent(self._task)]

    def restart(self) -> None:
        """Commit and continue as another task on the same state."""
        commit = self._task.prepare_commit()
        self.dropped += sum(commit.dropped_records.values())
        self._task.committed(commit.changes, b"1")
        self._checkpoint = commit.checkpoint
        self._task = self._open()

    def lose(self) -> None:
        """Continue as another task from the last commit, and forget the output since."""
        self._task = self._open()


@SHAPES
@EXECUTIONS
@given(rows, st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_the_records_are_those_of_the_model_however_they_are_cut_into_batches_and_tasks(
    execution: str, by_id: bool, records: list[Row], sizes: list[int]
) -> None:
    task = Restarting(unique(by_id), execution)
    start = part = 0
    while start < len(records):
        size = sizes[part % len(sizes)]
        task.take(records[start : start + size])
        task.restart()
        start, part = start + size, part + 1
    expected = model(records, by_id)
    assert task.output == expected
    assert task.dropped == len(records) - len(expected)


@SHAPES
@given(rows)
def test_both_executions_leave_the_same_store(by_id: bool, records: list[Row]) -> None:
    tasks = [task_of(unique(by_id), execution=name) for name in ("auto", "record")]
    for task in tasks:
        task.add_records("in", 0, batch_of(*records))
        task.process()
    by_column, by_record = tasks
    assert sent(by_column) == sent(by_record)
    one, other = by_column.prepare_commit(), by_record.prepare_commit()
    assert one.changes == other.changes
    assert one.checkpoint == other.checkpoint
    assert one.dropped_records == other.dropped_records


@EXECUTIONS
def test_records_after_a_lost_commit_are_forwarded_once(execution: str) -> None:
    task = Restarting(unique(by_id=False), execution)
    task.take([("k", "first", 0)])
    task.restart()
    task.output.clear()
    task.take([("l", "lost", 1)])
    task.lose()
    task.output.clear()
    task.take([("l", "again", 1), ("k", "duplicate", 2), ("l", "duplicate", 3)])
    assert task.output == [("l", "again", 1)]


@EXECUTIONS
@SHAPES
@pytest.mark.parametrize(
    ("times", "forwarded"),
    [
        ([0, 99], [0]),
        ([0, 100], [0]),
        ([0, 101], [0, 101]),
        ([0, 60, 120], [0, 120]),  # a duplicate does not begin another interval
        ([150, 50], [150]),
        ([200, 99], [200, 99]),
        ([200, 99, 99], [200, 99, 99]),  # late records are not compared with each other
        ([7, 7, 7], [7]),
    ],
)
def test_both_ends_of_the_interval_belong_to_it(
    execution: str, by_id: bool, times: list[int], forwarded: list[int]
) -> None:
    task = Restarting(unique(by_id), execution)
    task.take([("k", "v", time) for time in times])
    assert [time for _, _, time in task.output] == forwarded


@EXECUTIONS
def test_other_keys_advance_the_stream_time_that_ends_an_interval(execution: str) -> None:
    task = Restarting(unique(by_id=False), execution)
    task.take([("k", "1", 150), ("other", "2", 250), ("k", "3", 60), (None, "4", 251), ("k", "5", 60), ("k", "6", 151)])
    assert [value for _, value, _ in task.output] == ["1", "2", "4", "5", "6"]


@EXECUTIONS
def test_an_interval_of_0_drops_records_of_the_same_time(execution: str) -> None:
    task = Restarting(unique(by_id=False, interval_ms=0), execution)
    task.take([("k", "1", 5), ("k", "2", 5), ("k", "3", 6)])
    assert [value for _, value, _ in task.output] == ["1", "3"]


@EXECUTIONS
def test_an_interval_may_be_as_long_as_time_itself(execution: str) -> None:
    task = Restarting(unique(by_id=False, interval_ms=2**70), execution)
    task.take([("k", "1", 0), ("k", "2", 2**62)])
    task.restart()
    task.take([("k", "3", 2**62)])
    assert [value for _, value, _ in task.output] == ["1"]


@EXECUTIONS
def test_a_value_may_be_missing(execution: str) -> None:
    task = Restarting(unique(by_id=False), execution)
    task.take([("k", None, 0), ("k", "v", 1), ("l", "v", 1), ("l", None, 2)])
    assert task.output == [("k", None, 0), ("l", "v", 1)]


@EXECUTIONS
def test_records_made_of_one_record_are_duplicates_of_each_other(execution: str) -> None:
    task = Restarting(
        topology(lambda stream: deduplicated(stream.flat_map_values(lambda value: value.split()), by_id=True)),
        execution,
    )
    task.take([("k", "a b a", 0), ("k", "b c", 1)])
    assert [value for _, value, _ in task.output] == ["a", "b", "c"]


@EXECUTIONS
def test_two_ids_of_different_keys_are_no_duplicates_even_if_their_bytes_meet(execution: str) -> None:
    task = Restarting(unique(by_id=True), execution)
    task.take([("ab", "c", 0), ("a", "bc", 0), ("ab", "c", 0)])
    assert task.output == [("ab", "c", 0), ("a", "bc", 0)]


@EXECUTIONS
def test_the_mapper_is_not_called_without_a_key(execution: str) -> None:
    keys: list[str] = []

    def id_of(key: str, value: str) -> str:
        keys.append(key)
        return value

    def shape(stream: KStream) -> KStream:
        return stream.deduplicate_by_key_value(id_of, INTERVAL_MS)

    task = Restarting(topology(shape), execution)
    task.take([(None, "v", 0), ("k", "v", 0)])
    assert keys == ["k"]


@EXECUTIONS
@pytest.mark.parametrize("failing", ["mapper", "serde"])
def test_a_failing_id_is_named_with_its_record(execution: str, failing: str) -> None:
    def id_of(key: str, value: str) -> Any:
        if value == "bad" and failing == "mapper":
            raise LookupError(value)
        return 7 if value == "bad" else value

    def shape(stream: KStream) -> KStream:
        options = Deduplicated(name="once", id_serde=Serdes.string())
        return stream.deduplicate_by_key_value(id_of, INTERVAL_MS, options)

    task = Restarting(topology(shape), execution)
    with pytest.raises(StreamsError, match="processor=once, topic=in, partition=0, offset=2"):
        task.take([(None, "v", 0), ("k", "v", 0), ("k", "bad", 0), ("k", "w", 0)])


@EXECUTIONS
def test_duplicates_are_counted_by_their_reason(execution: str) -> None:
    task = task_of(unique(by_id=False), execution=execution)
    task.add_records("in", 0, batch_of(*[("k", "v", 0)] * 30))
    task.process()
    counted = {(each.place, each.reason): n for each, n in task.prepare_commit().dropped_records.items()}
    assert counted == {(STORE, DropReason.DUPLICATE): 29}


@EXECUTIONS
def test_headers_stay(execution: str) -> None:
    headers = (("trace", b"1"),)
    with TopologyTestDriver(unique(by_id=False), strings(execution)) as driver:
        source = driver.create_input_topic("in", STRING, STRING)
        for _ in range(2):
            source.pipe_input("k", "v", 5, headers=headers)
        (record,) = driver.create_output_topic("out", STRING, STRING).read_records_to_list()
    assert (record.headers, record.timestamp) == (headers, 5)


@EXECUTIONS
@pytest.mark.parametrize(("store_type", "most"), [("in_memory", 2), ("rocksdb", 4)])
def test_the_store_forgets_what_can_have_no_duplicates(execution: str, store_type: str, most: int) -> None:
    hour_ms = 3_600_000
    task = Restarting(unique(by_id=False, interval_ms=hour_ms), execution, **{"dsl.store.suppliers.class": store_type})
    for hour in range(10):
        task.take([(f"k{hour}", "v", hour * hour_ms)])
        task.restart()
    assert 2 <= task.base.view(STORE).approximate_num_entries() <= most


@pytest.mark.xfail(
    strict=True, reason="the store has no offsets, so a record is a duplicate of itself (DIVERGENCES.md)"
)
def test_a_record_that_comes_again_after_the_state_is_forwarded_again() -> None:
    """Restored state can be ahead of the committed offsets if the guarantee is at least once."""
    task = Restarting(unique(by_id=False), "auto")
    task.take([("k", "v", 0)])
    task.restart()
    task.output.clear()
    task._offset = 0
    task.take([("k", "v", 0)])
    assert task.output == [("k", "v", 0)]


def strings(execution: str) -> dict[str, Any]:
    return {
        "application.id": "test",
        "default.key.serde": STRING,
        "default.value.serde": STRING,
        "penstock.execution": execution,
    }
