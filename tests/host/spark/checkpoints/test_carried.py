"""The places of carried rows: their order, and the number of looks at a manifest that they take."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.host.spark.checkpoints.carried import carried_places
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, Metadata
from penstock.host.spark.checkpoints.savepoint import SavedState
from penstock.host.spark.protocol.task_entry import CarriedRange, TaskEntry
from penstock.record import TopicPartition


def entry(file: str, sent: int, held: str, number: int) -> TaskEntry:
    """Return a task that has sent rows to the partitions of `counts`, and holds back rows of one partition."""
    places = {"counts": [[each, each, 1, 0] for each in range(sent)], held: [[number, sent, 1, 0]]}
    return TaskEntry(carried={"id": file, "places": places, "held": [[held, number, 1]], "sends": True})


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[TaskEntry]:
    """The entries that were asked what they hold back."""
    held, found = TaskEntry.held, []

    def counted(self: TaskEntry) -> dict[TopicPartition, int]:
        found.append(self)
        return held(self)

    monkeypatch.setattr(TaskEntry, "held", counted)
    return found


def test_rows_that_a_task_holds_back_come_first(looks: list[TaskEntry]) -> None:
    manifest = Manifest("q", 1, 1, 0, 0, {"0_1": entry("bb", 2, "in", 1), "0_0": entry("aa", 2, "in", 0)})
    assert carried_places(manifest) == [
        (TopicPartition("in", 0), CarriedRange("0_0", "aa", 2, 1, 0)),
        (TopicPartition("in", 1), CarriedRange("0_1", "bb", 2, 1, 0)),
        (TopicPartition("counts", 0), CarriedRange("0_0", "aa", 0, 1, 0)),
        (TopicPartition("counts", 1), CarriedRange("0_0", "aa", 1, 1, 0)),
        (TopicPartition("counts", 0), CarriedRange("0_1", "bb", 0, 1, 0)),
        (TopicPartition("counts", 1), CarriedRange("0_1", "bb", 1, 1, 0)),
    ]
    assert len(looks) == 2


def test_a_savepoint_is_searched_once_for_the_rows_of_all_partitions(tmp_path: Path, looks: list[TaskEntry]) -> None:
    savepoint = Checkpoint(str(tmp_path))
    tasks = {f"0_{number}": entry("aa", 3, "other", number) for number in range(3)}
    savepoint.write_manifest(Manifest("q", 1, 1, 0, 0, tasks, {"in": [5, 6, 7]}), lambda: None)
    savepoint.write_metadata(Metadata("c", "q", "app", {}, (3,), 3, {}))
    savepoint.write_savepoint({"epoch": 1, "taken_ms": 0})
    saved = SavedState(savepoint)
    for number in range(3):
        read = TopicPartition("in", number)
        assert saved.task(f"0_{number}", [read, TopicPartition("counts", number)], ["counts"]).positions == {
            read: 5 + number
        }
    assert len(looks) == 3
