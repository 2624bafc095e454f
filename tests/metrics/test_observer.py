"""The observer of a task: calls, caches, buffers and iterators, by the operations that a task reports."""

from __future__ import annotations

import inspect

from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.measurements import Measurement
from penstock.metrics.observer import NOT_OBSERVED, RecordingObserver, TaskObserver


class Watched:
    """An observer with clocks that the test sets: now, of which one is 1,000 ahead."""

    def __init__(self) -> None:
        self.now = 0
        self.observer = RecordingObserver(lambda: self.now, lambda: 1_000 + self.now)


def test_a_call_of_many_keys_counts_as_many_calls_of_the_same_time() -> None:
    watched = Watched()
    ended = watched.observer.call_began("rocksdb-window", "s", "put-all")
    watched.now = 12
    ended(3)
    watched.observer.call_began("rocksdb-window", "s", "put-all")(0)
    assert watched.observer.take() == {"put-all/rocksdb-window-state-id/s": Measurement(3, 12.0, 4.0, 4.0)}
    assert watched.observer.take() == {}


@given(st.lists(st.integers(0, 5)))
def test_records_are_counted_by_node(numbers: list[int]) -> None:
    observer = Watched().observer
    for number in numbers:
        observer.processed("node", number)
        observer.emitted("node", number)
    found = observer.take()
    assert found.keys() == (
        {"process/processor-node-id/node", "suppression-emit/processor-node-id/node"} if any(numbers) else set()
    )
    assert all(measured.number == sum(numbers) for measured in found.values())


def test_the_hit_ratio_is_that_of_all_reads_so_far() -> None:
    observer = Watched().observer
    observer.cache_read("s", 4, 1)
    observer.cache_read("s", 4, 3)
    observer.cache_read("s", 8, 0)  # without a hit, as in Kafka, nothing is recorded
    assert observer.take() == {"hit-ratio/record-cache-id/s": Measurement(4, 0.25 + 3 * 0.5, 0.25, 0.5)}
    observer.cache_read("s", 4, 1)
    assert observer.take() == {"hit-ratio/record-cache-id/s": Measurement(1, 0.25, 0.25, 0.25)}


def test_a_buffer_is_measured_by_its_bytes_and_its_records() -> None:
    observer = Watched().observer
    observer.buffer_changed("s", 10, 2)
    observer.buffer_changed("s", 4, 1)
    assert observer.take() == {
        "suppression-buffer-size/in-memory-suppression-state-id/s": Measurement(2, 14.0, 4.0, 10.0),
        "suppression-buffer-count/in-memory-suppression-state-id/s": Measurement(2, 3.0, 1.0, 2.0),
    }


def test_open_iterators_are_counted_until_they_end() -> None:
    watched = Watched()
    operation = "{}/in-memory-state-id/s".format
    first = watched.observer.iterator_opened("in-memory", "s")
    watched.now = 5
    second = watched.observer.iterator_opened("in-memory", "s")
    found = watched.observer.take()
    assert [found[operation(name)].total for name in ("num-open-iterators", "oldest-iterator-open-since-ms")] == [
        2,
        1_000,
    ]
    first()
    second()
    found = watched.observer.take()
    assert [found[operation(name)].total for name in ("num-open-iterators", "oldest-iterator-open-since-ms")] == [0, 0]
    assert found[operation("iterator-duration")] == Measurement(2, 5.0, 0.0, 5.0)


def test_without_recording_every_report_is_taken_and_forgotten() -> None:
    assert not NOT_OBSERVED.should_record
    NOT_OBSERVED.processed("node", 1)
    NOT_OBSERVED.call_began("in-memory", "s", "put")(1)
    NOT_OBSERVED.iterator_opened("in-memory", "s")()
    assert NOT_OBSERVED.take() == {}


def test_the_recording_observer_takes_the_same_reports() -> None:
    reports = [name for name in vars(TaskObserver) if not name.startswith("_") and name != "should_record"]
    for name in reports:
        plain, recording = (inspect.signature(getattr(kind, name)) for kind in (TaskObserver, RecordingObserver))
        assert plain == recording
        assert name in vars(RecordingObserver)
