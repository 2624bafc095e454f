"""Files of the checkpoint: manifests, segments, metadata, generations, and which of them are deleted."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from penstock.config import StreamsConfig
from penstock.errors import IncompatibleCheckpointError, TaskMigratedError
from penstock.host.spark.checkpoints.checkpoint import (
    FORMAT,
    Checkpoint,
    Manifest,
    Metadata,
    RemovedStore,
    TopicFigures,
)
from penstock.host.spark.checkpoints.cleaner import Cleaner
from penstock.host.spark.checkpoints.documents import unsealed
from penstock.host.spark.checkpoints.manifests import NewManifests
from penstock.host.spark.checkpoints.result_log import ResultLog
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.placement import Placement
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.storage.sealed_files import sealed
from penstock.plan.subtopology import BuiltTopology, SubtopologySpec, TaskId, requests_source


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(str(tmp_path))


def never() -> None:
    """Nothing happens between writing and renaming."""


def entry(*segments: str) -> TaskEntry:
    return TaskEntry(segments[-1], {"deltas": [{"id": each} for each in segments], "snapshots": []})


def manifest(epoch: int, tasks: dict[str, TaskEntry], planned_ms: int = 0) -> Manifest:
    return Manifest("q", epoch, 1, planned_ms, planned_ms + 5, tasks)


def write(checkpoint: Checkpoint, epoch: int, tasks: dict[str, TaskEntry], planned_ms: int = 0) -> None:
    checkpoint.write_manifest(manifest(epoch, tasks, planned_ms), never)


def test_a_driver_that_stood_still_continues_with_the_oldest_manifest_that_is_left(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    following = NewManifests(checkpoint, patience_ms=0)
    for epoch in range(1, 4):
        write(checkpoint, epoch, {})
    assert [each.epoch for each in following.after(1, "q")] == [2, 3]
    assert not list(following.after(3, "q"))
    for epoch in range(4, 12):
        write(checkpoint, epoch, {})
    for epoch in range(1, 8):
        checkpoint.delete_manifest(epoch)
    assert not list(NewManifests(checkpoint, patience_ms=60_000).after(3, "q"))  # it may be about to be written
    assert [each.epoch for each in following.after(3, "q")] == [8, 9, 10, 11]
    assert "epochs 4 to 7" in caplog.text


def test_a_manifest_is_read_as_it_was_written(checkpoint: Checkpoint) -> None:
    written = Manifest(
        "q", 7, 2, 100, 150, {"0_1": TaskEntry("ab", {"deltas": [], "snapshots": []}, 99)}, {"t": [1, 2]},
        {"t": TopicFigures(3, 40)}, 5, "printed\n", {"removed-s-0": TaskEntry("cd")},
    )  # fmt: skip
    checkpoint.write_manifest(written, never)
    assert checkpoint.read_manifest(7, "q") == written
    assert checkpoint.read_manifest(8, "q") is None
    assert (checkpoint.first_epoch(), checkpoint.last_epoch()) == (7, 7)
    assert written.due_ms() == 99


def test_epoch_0_is_empty_and_always_there(checkpoint: Checkpoint) -> None:
    empty = checkpoint.read_manifest(0, "q")
    assert empty is not None
    assert empty.entry("0_0").head == ""
    assert checkpoint.last_epoch() == 0


def test_a_manifest_torn_before_its_renaming_is_not_there(checkpoint: Checkpoint) -> None:
    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoint.write_manifest(manifest(1, {}), crash)
    assert checkpoint.read_manifest(1, "q") is None
    assert checkpoint.last_epoch() == 0


def test_an_offset_is_that_of_the_newest_driver_which_planned_the_epoch(checkpoint: Checkpoint) -> None:
    assert checkpoint.read_offset(3) is None
    assert checkpoint.last_planned_epoch() == 0
    checkpoint.write_offset(3, 70, {"planned by": "the newer one"})
    checkpoint.write_offset(3, 9, {"planned by": "a zombie"})
    checkpoint.write_offset(4, 9, {"planned by": "a zombie"})
    assert checkpoint.read_offset(3) == {"planned by": "the newer one"}
    assert checkpoint.last_planned_epoch() == 4
    checkpoint.delete_offsets_before(4)
    assert checkpoint.read_offset(3) is None
    assert checkpoint.read_offset(4) == {"planned by": "a zombie"}


def test_each_driver_takes_a_larger_generation_and_older_ones_are_refused(checkpoint: Checkpoint) -> None:
    first, second = (Checkpoint(checkpoint.uri).take_generation() for _ in range(2))
    assert first < second
    checkpoint.check_generation(second)
    with pytest.raises(TaskMigratedError, match="Another program has taken over"):
        checkpoint.check_generation(first)


def test_a_driver_that_was_overtaken_takes_no_second_generation(checkpoint: Checkpoint) -> None:
    first = checkpoint.take_generation()
    assert checkpoint.take_generation() > first
    newer = Checkpoint(checkpoint.uri).take_generation()
    with pytest.raises(TaskMigratedError, match="Another program has taken over"):
        checkpoint.take_generation()
    assert checkpoint.read_generation() == newer


def test_a_generation_follows_that_of_the_last_manifest_where_the_files_are_missing(checkpoint: Checkpoint) -> None:
    before = checkpoint.take_generation()
    shutil.rmtree(Path(checkpoint.uri) / "generations")
    assert Checkpoint(checkpoint.uri).take_generation(before) > before


def test_of_drivers_that_start_at_one_moment_one_stays(checkpoint: Checkpoint) -> None:
    drivers = 3
    at_once = threading.Barrier(drivers, timeout=60)
    taken: list[int] = []
    told: list[TaskMigratedError] = []

    def start() -> None:
        try:
            taken.append(Checkpoint(checkpoint.uri).take_generation(before_write=lambda: at_once.wait() and None))
        except TaskMigratedError as error:
            told.append(error)

    threads = [threading.Thread(target=start) for _ in range(drivers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in taken:
        try:
            checkpoint.check_generation(each)
        except TaskMigratedError as error:
            told.append(error)
    assert len(told) == drivers - 1
    assert len(set(taken)) == len(taken)


def test_a_driver_that_is_late_changes_nothing_for_those_after_it(checkpoint: Checkpoint) -> None:
    newer: list[int] = []

    def others_start() -> None:
        newer.extend(Checkpoint(checkpoint.uri).take_generation() for _ in range(2))

    with pytest.raises(TaskMigratedError):
        checkpoint.take_generation(before_write=others_start)
    checkpoint.check_generation(newer[-1])


def test_metadata_of_another_format_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    metadata = Metadata(
        "c", "q", "app", {"t": [0]}, (2, 2), 2, {"nodes": {}}, removed={"counts": RemovedStore("key_value", 2)}
    )
    assert checkpoint.read_metadata() is None
    checkpoint.write_metadata(metadata)
    assert checkpoint.read_metadata() == metadata
    path = tmp_path / "metadata"
    path.write_bytes(sealed(unsealed(path.read_bytes(), "").replace(b'"format": %d' % FORMAT, b'"format": 99')))
    with pytest.raises(IncompatibleCheckpointError, match="has format 99"):
        checkpoint.read_metadata()


def test_works_on_a_file_system_given_by_uri(tmp_path: Path) -> None:
    checkpoint = Checkpoint(f"file://{tmp_path}/there")
    checkpoint.write_segment("0_0", "aa", b"data", never)
    assert checkpoint.read_segment("0_0", "aa") == b"data"
    assert checkpoint.read_segment("0_0", "bb") is None


def cleaner(
    checkpoint: Checkpoint, retained: int, start_epoch: int = 0, parks: bool = False, retained_ms: int = 0
) -> Cleaner:
    parked = (requests_source("requests", "parked"),) if parks else ()
    tasks = (TaskId(0, 0),)
    values = {"penstock.manifests.retained": retained, "penstock.manifests.retained.ms": retained_ms}
    description = ApplicationDescription(
        config=StreamsConfig({"application.id": "a", **values}, environment={}),
        topology=BuiltTopology((SubtopologySpec(0, parked),)),
        placement=Placement((tasks,), (1,), 1, {}, {}, {}),
        topic_partitions={},
        begin={},
        checkpoint=checkpoint.uri,
        checkpoint_id="c",
        query_id="q",
        generation=1,
        transactional=parks,
        control_directory="",
        start_epoch=start_epoch,
    )
    return Cleaner(description, checkpoint)


def results_of(checkpoint: Checkpoint) -> list[int]:
    return sorted(int(each.name) for each in checkpoint.results().find(""))


def test_results_are_kept_until_the_next_epoch_is_committed(checkpoint: Checkpoint) -> None:
    for epoch in range(1, 6):
        write(checkpoint, epoch, {"0_0": entry("a")})
        ResultLog(checkpoint, epoch, "0_0", "a").write(b"", never)
    cleaning = cleaner(checkpoint, retained=100, parks=True)
    cleaning.clean(3)
    assert results_of(checkpoint) == [3, 4, 5]
    cleaning.clean(4)
    assert results_of(checkpoint) == [4, 5]


def segments(checkpoint: Checkpoint) -> set[str]:
    return {name for name, _ in checkpoint.list_segments("0_0")}


def test_what_no_retained_manifest_names_is_deleted(checkpoint: Checkpoint) -> None:
    for name in ("a", "b", "ab", "c", "d", "e"):
        checkpoint.write_segment("0_0", name, b"", never)
    logs = {1: ("a",), 2: ("a", "b"), 3: ("ab", "c"), 4: ("ab", "c", "d"), 5: ("ab", "c", "d", "e")}
    for epoch, names in logs.items():
        write(checkpoint, epoch, {"0_0": entry(*names)})
    cleaner(checkpoint, retained=3).clean(5)
    assert checkpoint.first_epoch() == 3
    assert segments(checkpoint) == {"ab", "c", "d", "e"}


def test_manifests_are_retained_by_number_and_by_age(checkpoint: Checkpoint) -> None:
    for epoch in range(1, 9):
        write(checkpoint, epoch, {}, planned_ms=epoch * 1_000)
    cleaner(checkpoint, retained=2, retained_ms=3_001).clean(8)
    assert checkpoint.first_epoch() == 5
    cleaner(checkpoint, retained=6, retained_ms=1).clean(8)
    assert checkpoint.first_epoch() == 5
    cleaner(checkpoint, retained=2).clean(8)
    assert checkpoint.first_epoch() == 7


def test_a_segment_that_a_later_life_makes_again_is_kept(checkpoint: Checkpoint) -> None:
    for name in ("a", "b"):
        checkpoint.write_segment("0_0", name, b"", never)
    logs = {1: ("a", "b"), 2: ("a", "b"), 3: (), 4: ("a",), 5: ("a",), 6: ("a",)}
    for epoch, names in logs.items():
        write(checkpoint, epoch, {"0_0": entry(*names)} if names else {})
    cleaner(checkpoint, retained=3, start_epoch=3).clean(6)
    assert checkpoint.first_epoch() == 4
    assert segments(checkpoint) == {"a"}


def test_large_files_of_carried_rows_are_kept_for_a_few_epochs(checkpoint: Checkpoint) -> None:
    for epoch in range(1, 13):
        carried = {}
        for task, size in (("0_0", 2 << 20), ("0_1", 100)):
            places = {"t": [[0, 0, size // 2, 0], [1, size // 2, size // 2, 0]]}
            carried[task] = TaskEntry(carried={"id": f"{epoch}", "places": places, "held": [], "sends": True})
            checkpoint.write_segment(task, f"{epoch}", b"", never)
        write(checkpoint, epoch, carried)
    clearing = cleaner(checkpoint, retained=100)
    for epoch in (11, 12):
        assert clearing.clean(epoch) == 1
    assert segments(checkpoint) == {str(epoch) for epoch in range(3, 13)}
    assert len(checkpoint.list_segments("0_1")) == 12


def test_nothing_is_deleted_within_the_retention(checkpoint: Checkpoint) -> None:
    checkpoint.write_segment("0_0", "a", b"", never)
    for epoch in (1, 2, 3):
        write(checkpoint, epoch, {"0_0": entry("a")})
    assert cleaner(checkpoint, retained=3).clean(3) == 0


def test_files_of_attempts_that_were_never_committed_are_found(checkpoint: Checkpoint) -> None:
    checkpoint.write_segment("0_0", "a", b"", never)
    checkpoint.write_segment("0_0", "orphan", b"", never)
    written = dict(checkpoint.list_segments("0_0"))["orphan"]
    later = written + 3_600_000
    for epoch in range(1, 6):
        write(checkpoint, epoch, {"0_0": entry("a")}, planned_ms=written - 10 if epoch < 4 else later)
    clearing = cleaner(checkpoint, retained=2)
    clearing.clean(4)
    assert segments(checkpoint) == {"a", "orphan"}  # as young as the oldest manifest: perhaps of an epoch under way
    clearing.clean(5)
    assert segments(checkpoint) == {"a"}


def test_what_the_newest_manifest_names_is_kept_though_a_clock_was_wrong(checkpoint: Checkpoint) -> None:
    for name in ("a", "b", "orphan"):
        checkpoint.write_segment("0_0", name, b"", never)
    ahead = dict(checkpoint.list_segments("0_0"))["b"] + 3_600_000
    for epoch in range(1, 6):
        write(checkpoint, epoch, {"0_0": entry("a", "b") if epoch == 5 else entry("a")}, planned_ms=ahead)
    cleaner(checkpoint, retained=2).clean(5)
    assert segments(checkpoint) == {"a", "b"}


def test_what_a_retained_manifest_names_is_kept_though_the_clock_went_back_after_the_oldest(
    checkpoint: Checkpoint,
) -> None:
    for name in ("a", "b"):
        checkpoint.write_segment("0_0", name, b"", never)
    written = dict(checkpoint.list_segments("0_0"))["b"]
    for epoch in range(1, 6):
        logs = {4: ("a", "b")}
        write(checkpoint, epoch, {"0_0": entry(*logs.get(epoch, ("a",)))}, planned_ms=written + (epoch < 4) * 10**11)
    cleaner(checkpoint, retained=3).clean(5)
    assert checkpoint.first_epoch() == 3
    assert segments(checkpoint) == {"a", "b"}


def test_a_driver_that_is_over_clears_nothing(checkpoint: Checkpoint) -> None:
    for name in ("a", "b"):
        checkpoint.write_segment("0_0", name, b"", never)
    for epoch in range(1, 6):
        write(checkpoint, epoch, {"0_0": entry("a" if epoch == 1 else "b")})
    over = cleaner(checkpoint, retained=2)
    checkpoint.take_generation()
    checkpoint.take_generation()
    assert over.clean(5) == 0
    assert segments(checkpoint) == {"a", "b"}


def test_at_most_a_bounded_number_of_files_is_deleted_in_one_epoch(checkpoint: Checkpoint) -> None:
    for epoch in range(1, 701):
        checkpoint.write_segment("0_0", f"s{epoch}", b"", never)
        write(checkpoint, epoch, {"0_0": entry(f"s{epoch}")})
    clearing = cleaner(checkpoint, retained=2)
    counts = []
    while clearing_deleted := clearing.clean(700):
        counts.append(clearing_deleted)
    assert max(counts) <= 201
    assert segments(checkpoint) == {"s699", "s700"}
