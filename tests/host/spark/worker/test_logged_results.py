"""Results of tasks in the result log: the first attempt in an epoch counts, also for a run by another driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import IncompatibleCheckpointError, StreamsError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.messages import TaskControl, TaskPhases, TaskReport
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.spark.worker import logged_results
from penstock.host.spark.worker.determinism import TaskResult
from penstock.host.spark.worker.logged_results import logged_result
from penstock.plan.subtopology import TaskId
from penstock.record import PartitionBatch, RecordBatch
from tests.host.spark.protocol.test_application_description import description_of
from tests.host.test_topologies import word_count

CONTROL = TaskControl(3, 1_000, TaskEntry("aa"), offset_digest="d")
BUSY = TaskPhases(0.0, 1.0, 0.1, 0.2, 0.3)


@pytest.fixture
def description(tmp_path: Path) -> ApplicationDescription:
    return replace(description_of(word_count("in", "out"), tmp_path), generation=1)


def result(value: bytes, phases: TaskPhases | None = BUSY, generation: int = 1) -> TaskResult:
    batch = RecordBatch.of([(b"key", value, 1, 0, (("h", b"1"),))])
    entry = TaskEntry(value.hex(), due_ms=7)
    report = TaskReport("1_0", 3, generation, "aa", entry, printed="said", phases=phases, tapped={"node": [value]})
    return TaskResult([PartitionBatch("out", 1, batch)], report)


def attempt(
    description: ApplicationDescription, given: TaskResult | Exception, control: TaskControl = CONTROL
) -> TaskResult:
    def run() -> TaskResult:
        if isinstance(given, Exception):
            raise given
        return given

    return logged_result(description, Checkpoint(description.checkpoint), TaskId(1, 0), control, run)


def content(found: TaskResult) -> tuple[object, ...]:
    rows = [(topic, n, *batch.keys, *batch.values, batch.headers_at(0)) for topic, n, batch, _ in found.output]
    return rows, found.report._replace(generation=1, tapped={})


def test_a_later_attempt_takes_the_result_without_a_run(description: ApplicationDescription) -> None:
    assert attempt(description, result(b"first")) == result(b"first")
    later = attempt(replace(description, generation=2), AssertionError("it runs again"))
    assert content(later) == content(result(b"first"))
    assert later.report.generation == 2, "the commit takes reports of its own driver only"
    assert later.report.tapped == {}


def test_an_error_is_not_kept(description: ApplicationDescription) -> None:
    with pytest.raises(StreamsError, match="away"):
        attempt(description, StreamsError("the broker is away"))
    assert attempt(description, result(b"second")) == result(b"second")


def test_a_task_that_had_nothing_to_do_leaves_no_file(description: ApplicationDescription) -> None:
    attempt(description, result(b"", phases=None))
    assert not Checkpoint(description.checkpoint).results().find("")


def test_a_result_of_another_version_is_refused(
    description: ApplicationDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt(description, result(b"first"))
    monkeypatch.setattr(logged_results, "_VERSION", 2)
    with pytest.raises(IncompatibleCheckpointError, match=r"version 1 of its format.*reads version 2"):
        attempt(description, result(b"second"))


@pytest.mark.parametrize(
    "other", [CONTROL._replace(offset_digest="e"), CONTROL._replace(entry=TaskEntry("bb")), CONTROL._replace(epoch=4)]
)
def test_a_run_with_other_input_has_its_own_result(description: ApplicationDescription, other: TaskControl) -> None:
    attempt(description, result(b"first"))
    assert attempt(description, result(b"other"), other) == result(b"other")


def test_a_changed_program_has_its_own_result(description: ApplicationDescription) -> None:
    attempt(description, result(b"first"))
    changed = replace(description, program="c4")
    assert attempt(changed, result(b"other")) == result(b"other")
    assert content(attempt(description, AssertionError("it runs again"))) == content(result(b"first"))
