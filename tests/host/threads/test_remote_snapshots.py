"""Snapshots on a file system: which is the newest, which are whole, and which are deleted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, CorruptedSegmentError
from penstock.host.storage.files import Files
from penstock.host.threads.remote_snapshots import (
    Changelog,
    RemoteSnapshots,
    Snapshot,
    SnapshotName,
    SnapshotOrigin,
    UnusableSnapshotError,
)
from penstock.plan.subtopology import TaskId
from penstock.state.segments import EncodedSegment, encode_snapshot

TASK = TaskId(0, 1)
ORIGIN = SnapshotOrigin("app", "0_1", {"s": "key_value"}, {"s": Changelog("app-s-changelog", 1, "topic-1")})
KIND = ORIGIN.kind


@pytest.fixture(params=["", "fsspec+memory://"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}{tmp_path}"


@pytest.fixture
def snapshots(uri: str) -> RemoteSnapshots:
    return RemoteSnapshots(uri, "app")


def segments(**entries: str) -> list[EncodedSegment]:
    stored = [(key.encode(), value.encode()) for key, value in sorted(entries.items())]
    return encode_snapshot(b"position", 0, None, (("s", "key_value"),), [("s", iter(stored))], 1 << 20)


def snapshot_at(offset: int) -> Snapshot:
    return Snapshot({"s": offset}, {"clock": 7}, 1_000, [])


def written(snapshots: RemoteSnapshots, offset: int, kind: str = KIND) -> SnapshotName:
    return snapshots.write(TASK, kind, snapshot_at(offset), segments(k=str(offset)))


def content(snapshots: RemoteSnapshots, name: SnapshotName) -> dict[str, Any]:
    snapshot = snapshots.read(TASK, name)
    assert snapshot is not None
    merged: dict[str, Any] = {}
    for changes in snapshots.changes(TASK, name, snapshot):
        for store, entries in changes.items():
            merged.setdefault(store, {}).update(entries)
    return merged


def test_the_newest_is_the_one_with_the_largest_offsets_whoever_wrote_it_last(snapshots: RemoteSnapshots) -> None:
    assert snapshots.newest(TASK, KIND) is None
    newer = written(snapshots, 100)
    zombie = written(snapshots, 99)
    assert snapshots.names(TASK) == [newer, zombie]
    assert content(snapshots, newer) == {"s": {b"k": b"100"}}
    newest = snapshots.newest(TASK, KIND)
    assert newest is not None
    assert (newest.offsets, newest.processor_metadata, newest.current_ms) == ({"s": 100}, {"clock": 7}, 1_000)
    assert snapshots.newest(TASK, "0" * 16) is None


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(ORIGIN, application_id="app2"),
        dataclasses.replace(ORIGIN, task="0_2"),
        dataclasses.replace(ORIGIN, layouts={"s": "key_value with headers"}),
        dataclasses.replace(ORIGIN, changelogs={"s": Changelog("app-s-changelog", 1, "topic-2")}),
    ],
)
def test_what_is_of_something_else_is_of_another_kind(other: SnapshotOrigin) -> None:
    assert other.kind != KIND
    assert dataclasses.replace(ORIGIN).kind == KIND


def test_two_whole_snapshots_stay_and_those_of_other_kinds_and_half_ones_go(
    snapshots: RemoteSnapshots, uri: str
) -> None:
    other = written(snapshots, 500, kind="0" * 16)
    kept = [written(snapshots, offset) for offset in (1, 2, 3, 4)][-2:]
    half = SnapshotName(5, KIND, "a")
    Files(snapshots.uri).write(f"{TASK}/{half}/00", b"an instance writes it, or has died")
    old_half = SnapshotName(2, KIND, "b")
    Files(snapshots.uri).write(f"{TASK}/{old_half}/00", b"an instance has died")
    assert snapshots.read(TASK, half) is None
    assert snapshots.delete_old(TASK, KIND) == 4
    assert other not in snapshots.names(TASK)
    assert snapshots.names(TASK) == [half, *reversed(kept)]
    assert snapshots.delete_old(TASK, KIND) == 0
    for number in range(6, 12):  # each attempt dies
        Files(snapshots.uri).write(f"{TASK}/{SnapshotName(number, KIND, 'c')}/00", b"")
    snapshots.delete_old(TASK, KIND)
    assert len(snapshots.names(TASK)) == 4


def test_a_snapshot_that_is_not_finished_is_not_named(snapshots: RemoteSnapshots) -> None:
    def torn() -> Iterator[EncodedSegment]:
        yield from segments(k="v")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        snapshots.write(TASK, KIND, snapshot_at(9), torn())
    assert snapshots.newest(TASK, KIND) is None
    assert [each for name in snapshots.names(TASK) for each in Files(snapshots.uri).find(f"{TASK}/{name}")] == []


def test_a_snapshot_of_which_another_instance_has_deleted_a_part_is_not_named(snapshots: RemoteSnapshots) -> None:
    def overtaken() -> Iterator[EncodedSegment]:
        yield from segments(k="1")
        for offset in range(10, 14):  # others write newer ones, and clean up
            written(snapshots, offset)
        for unfinished in range(14, 17):
            Files(snapshots.uri).write(f"{TASK}/{SnapshotName(unfinished, KIND, 'a')}/00", b"")
        snapshots.delete_old(TASK, KIND)
        yield from segments(k="2")

    with pytest.raises(UnusableSnapshotError, match="1 of 2 segments are gone"):
        snapshots.write(TASK, KIND, snapshot_at(9), overtaken())
    whole = [name.position for name in snapshots.names(TASK) if snapshots.read(TASK, name) is not None]
    assert whole == [13, 12]


def test_a_torn_or_changed_file_is_noticed(snapshots: RemoteSnapshots) -> None:
    name = written(snapshots, 3)
    directory = f"{TASK}/{name}"
    whole = snapshots.read(TASK, name)
    assert whole is not None
    there = Files(snapshots.uri)
    files = {each.name: there.read(f"{directory}/{each.name}") for each in there.find(directory)}
    manifest = files.pop("snapshot")
    assert manifest is not None
    for damaged in (manifest[:-1], manifest.replace(b'"clock"', b'"block"'), b""):
        Files(snapshots.uri).write(f"{directory}/snapshot", damaged)
        with pytest.raises(UnusableSnapshotError, match="torn or was changed"):
            snapshots.read(TASK, name)
    ((segment, data),) = files.items()
    assert data is not None
    for damaged in (data[:-1], data[:-1] + bytes([data[-1] ^ 1])):
        Files(snapshots.uri).write(f"{directory}/{segment}", damaged)
        with pytest.raises(CorruptedSegmentError):
            list(snapshots.changes(TASK, name, whole))
    Files(snapshots.uri).delete(f"{directory}/{segment}")
    with pytest.raises(UnusableSnapshotError, match="is missing"):
        list(snapshots.changes(TASK, name, whole))


def test_other_directories_are_not_taken_for_snapshots(snapshots: RemoteSnapshots) -> None:
    name = written(snapshots, 3)
    for each in ("notes", "1-2-3", f"{name}"[1:], ".tmp"):
        Files(snapshots.uri).write(f"{TASK}/{each}/file", b"")
    snapshots.delete_old(TASK, KIND)
    assert snapshots.names(TASK) == [name]
    assert Files(snapshots.uri).read(f"{TASK}/notes/file") == b""


def test_what_cannot_be_listed_is_named_without_who_signs_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    snapshots = RemoteSnapshots(f"fsspec+memory://{tmp_path}?password=s3cret", "app")

    def fail(*_: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(Files, "find", fail)
    with pytest.raises(UnusableSnapshotError, match=f"{tmp_path}/app/0_1 cannot be read: OSError: no route") as raised:
        snapshots.names(TASK)
    assert "s3cret" not in str(raised.value)


def test_a_file_system_that_nobody_knows_is_reported() -> None:
    with pytest.raises(ConfigError, match="Cannot store files at nowhere://a"):
        RemoteSnapshots("nowhere://a", "app")
