"""Detects non-deterministic user functions.

It compares two runs of a task and epoch, record by record and change by change. An epoch that is run again after a
crash must give the same result: the brokers may have the output of one run while the state of another is kept. A
function that reads a clock, draws at random or asks another system breaks this. This module only compares; `stage`
decides when a task runs twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from penstock.errors import NonDeterministicError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.protocol.messages import TaskReport
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.plan.subtopology import ProcessorSpec, SubtopologySpec
from penstock.record import Headers, PartitionBatch
from penstock.state.segment_log import log_from_json
from penstock.state.segments import decode

_SHOWN = 60  # characters of a key or value in a message


class TaskResult(NamedTuple):
    """The result of a task in an epoch."""

    output: Sequence[PartitionBatch]
    report: TaskReport


class _Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


def check_same(spec: SubtopologySpec, checkpoint: Checkpoint, first: TaskResult, second: TaskResult) -> None:
    """Raise NonDeterministicError if two runs of a task differ.

    They differ in their output, or in their changes of stores. The error names the first difference and the nodes that
    may have caused it.

    Args:
        spec: the sub-topology of the task.
        checkpoint: the checkpoint to which both runs wrote their segments.
        first: the result that is used.
        second: the result of the second run.
    """
    found = (
        _different_output(spec, first, second)
        or _different_state(spec, checkpoint, first, second)
        or _different_carried(first, second)
    )
    if found is not None:
        report = first.report
        raise NonDeterministicError(
            f"Task {report.task} gave a different result when epoch {report.epoch} ran a second time with the same "
            f"records: {found}. A function of these nodes, or of one before them, is not deterministic: it reads a "
            "clock, draws at random, keeps something between calls, depends on the order of a set, or asks another "
            "system. After a crash, results would not be exactly once. Take times from the record or the context, and "
            "look values up in a table."
        )


def _different_output(spec: SubtopologySpec, first: TaskResult, second: TaskResult) -> str | None:
    ours, theirs = _by_partition(first.output), _by_partition(second.output)
    for topic, partition in sorted({*ours, *theirs}):
        pairs = zip_longest(ours.get((topic, partition), []), theirs.get((topic, partition), []))
        for number, (one, other) in enumerate(pairs):
            if one != other:
                return (
                    f"record {number} for topic {topic}, partition {partition} (node {spec.sinks_of(topic)}) was "
                    f"{_shown_record(one)}, then {_shown_record(other)}"
                )
    return None


def _by_partition(output: Sequence[PartitionBatch]) -> dict[tuple[str, int], list[_Sent]]:
    found: dict[tuple[str, int], list[_Sent]] = {}
    for topic, partition, batch, _ in output:
        rows = zip(batch.keys, batch.values, batch.timestamps.tolist(), strict=True)
        found.setdefault((topic, partition), []).extend(
            _Sent(key, value, timestamp, batch.headers_at(row)) for row, (key, value, timestamp) in enumerate(rows)
        )
    return found


def _different_state(
    spec: SubtopologySpec, checkpoint: Checkpoint, first: TaskResult, second: TaskResult
) -> str | None:
    ours, theirs = first.report.entry, second.report.entry
    if ours.head == theirs.head:
        return None
    task = first.report.task
    for (store, key, one), (other_store, other_key, other) in zip_longest(
        _changes(checkpoint, task, ours), _changes(checkpoint, task, theirs), fillvalue=("", b"", None)
    ):
        if (store, key, one) != (other_store, other_key, other):
            name = store or other_store
            nodes = [node.name for node in spec.nodes if isinstance(node, ProcessorSpec) and name in node.stores]
            return (
                f"store {name} (node {', '.join(nodes)}) got {_shown(key)} = {_shown(one)}, then "
                f"{_shown(other_key)} = {_shown(other)}"
            )
    nodes = [node.name for node in spec.nodes if isinstance(node, ProcessorSpec)]
    return f"the task's stored times and punctuations differ (nodes {', '.join(nodes)})"


def _different_carried(first: TaskResult, second: TaskResult) -> str | None:
    ours, theirs = first.report.entry.carried, second.report.entry.carried
    if (ours and ours["id"]) == (theirs and theirs["id"]):
        return None
    topics = sorted({*(ours["places"] if ours else ()), *(theirs["places"] if theirs else ())})
    return f"the records that it carries to the next epoch differ, for topics {', '.join(topics)}"


def _changes(checkpoint: Checkpoint, task: str, entry: TaskEntry) -> Iterator[tuple[str, bytes, bytes | None]]:
    for info in log_from_json(dict(entry.segments)).last_commit():
        data = checkpoint.read_segment(task, info.id.hex())
        if data is not None:
            for store, changes in decode(data, info.id).changes.items():
                for key, value in changes.items():
                    yield store, key, value


def _shown_record(record: _Sent | None) -> str:
    if record is None:
        return "none"
    headers = f", headers {record.headers!r:.{_SHOWN}}" if record.headers else ""
    return f"{_shown(record.key)} = {_shown(record.value)} at {record.timestamp} ms{headers}"


def _shown(data: bytes | None) -> str:
    return f"{data!r:.{_SHOWN}}"
