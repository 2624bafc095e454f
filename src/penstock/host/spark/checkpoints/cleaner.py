"""Deletes expired manifests, and segments that no retained manifest names.

It deletes a bounded number of files per epoch, in the source process, after the epoch is in Spark's commit log. No
manifest names a segment again once a manifest has dropped it: so segments of an expired manifest that the next one does
not name are garbage. Only a later topology version may name a segment again that an earlier one had dropped: a task
returns to a former number, or starts over and commits the same changes, which makes the same segment. Files of carried
rows serve one epoch: large ones are kept for fewer epochs. To find files of attempts that no manifest ever named, the
cleaner lists the directory of one task per epoch: it deletes files that are older than the oldest retained manifest and
that neither it nor the newest one names, because the clocks that give their age may be wrong. A driver that has been
overtaken deletes nothing: it does not know which files the next topology version has taken back.
"""

from __future__ import annotations

from penstock.host.spark.checkpoints.carried import file_bytes
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest
from penstock.host.spark.checkpoints.result_log import delete_results, delete_results_before
from penstock.host.spark.checkpoints.stored_history import delete_chunks
from penstock.host.spark.protocol.application_description import ApplicationDescription

_DELETIONS = 200
"""Most files deleted in one epoch."""

_CARRIED_RETAINED = 10
"""Epochs for which large files of carried rows are kept: a replay needs those of the last one, a copy in progress some
more.
"""

_LARGE_BYTES = 1024 * 1024
"""Size from which a file of carried rows is large, in bytes."""

_MARGIN_MS = 600_000
"""Largest difference assumed between the clocks of workers and of the file system, in ms."""


class Cleaner:
    """Deletes the garbage of one checkpoint; one process at a time."""

    def __init__(self, description: ApplicationDescription, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._query_id = description.query_id
        self._generation = description.generation
        self._retained: int = description.config["penstock.manifests.retained"]
        self._retained_ms: int = description.config["penstock.manifests.retained.ms"]
        self._start_epoch = description.start_epoch
        self._histories = dict(description.histories)
        self._tasks: list[str] | None = None
        self._oldest: int | None = None
        self._logs_results = any(map(description.logs_results, description.topology.subtopologies))
        self._logged_from: int | None = None
        self._named: set[tuple[str, str]] = set()
        self._named_to = 0

    def clean(self, epoch: int) -> int:
        """Delete the files that the commit of `epoch` made obsolete; return their number."""
        if self._checkpoint.read_generation() > self._generation:
            return 0
        self._drop_epochs_before(epoch)
        deleted = self._drop_carried(epoch - _CARRIED_RETAINED)
        keep_from = epoch - self._retained + 1
        if keep_from <= 1:
            return deleted
        if self._oldest is None:
            self._oldest = self._checkpoint.first_epoch()
        if self._tasks is None:
            self._tasks = self._checkpoint.state_directories()
        while self._oldest < keep_from and deleted < _DELETIONS and not self._is_young(self._oldest, epoch):
            deleted += self._expire(self._oldest, epoch)
            self._oldest += 1
        self._drop_histories(self._read(self._oldest) if self._histories else None)
        if deleted < _DELETIONS and self._tasks:
            task = self._tasks[epoch % len(self._tasks)]
            deleted += self._sweep(task, self._read(self._oldest), self._read(epoch), _DELETIONS - deleted)
        return deleted

    def _is_young(self, expired: int, newest: int) -> bool:
        """Return whether the commit of `expired` must still be readable for its age."""
        if not self._retained_ms:
            return False
        old, new = self._read(expired), self._read(newest)
        return old is not None and new is not None and new.committed_ms - old.committed_ms < self._retained_ms

    def _drop_epochs_before(self, epoch: int) -> None:
        """Delete the log of the epochs before `epoch`, the last committed one, and their results.

        Those of `epoch` itself stay, so that a driver that no longer finds its manifest runs the same epoch again.
        """
        if self._logged_from is None:
            self._checkpoint.delete_offsets_before(epoch)
            delete_results_before(self._checkpoint, epoch)
        else:
            for each in range(self._logged_from, epoch):
                self._checkpoint.delete_offset(each, self._generation)
                if self._logs_results:
                    delete_results(self._checkpoint, each)
        self._logged_from = epoch

    def _drop_carried(self, epoch: int) -> int:
        """Delete the large files of rows that `epoch` carried to the next epoch."""
        manifest = self._read(epoch) if epoch > 0 else None
        if manifest is None:
            return 0
        files = [
            (task, entry.carried["id"])
            for task, entry in manifest.tasks.items()
            if entry.carried is not None and file_bytes(entry.carried) >= _LARGE_BYTES
        ]
        for task, file in files:
            self._checkpoint.delete_segment(task, file)
        return len(files)

    def _drop_histories(self, oldest: Manifest | None) -> None:
        """Delete the rows of histories that are over in `oldest`, the oldest retained manifest."""
        if oldest is None:
            return
        for topic in self._histories.keys() & oldest.offsets.keys():
            if self._histories[topic].is_read(oldest.offsets[topic]):
                delete_chunks(self._checkpoint.uri, topic)
                del self._histories[topic]

    def _expire(self, epoch: int, newest: int) -> int:
        expired, successor = self._read(epoch), self._read(epoch + 1)
        if expired is None or successor is None:
            return 0
        garbage = expired.segments() - successor.segments() - self._named_in_this_version(epoch, newest)
        for task, segment in garbage:
            self._checkpoint.delete_segment(task, segment)
        self._checkpoint.delete_manifest(epoch)
        return len(garbage) + 1

    def _named_in_this_version(self, epoch: int, newest: int) -> set[tuple[str, str]]:
        """Return the segments that manifests of this topology version up to `newest` name.

        Empty unless `epoch` belongs to an earlier version.
        """
        if epoch >= self._start_epoch:
            return set()
        for each in range(max(self._start_epoch, self._named_to + 1), newest + 1):
            manifest = self._read(each)
            self._named.update(() if manifest is None else manifest.segments())
        self._named_to = newest
        return self._named

    def _sweep(self, task: str, oldest: Manifest | None, newest: Manifest | None, most: int) -> int:
        if oldest is None or newest is None or newest.planned_ms < oldest.planned_ms:
            return 0  # if the clock was set back in between, times do not show which files are older
        named = {segment for owner, segment in oldest.segments() | newest.segments() if owner == task}
        old = oldest.planned_ms - _MARGIN_MS
        orphans = [
            name for name, written in self._checkpoint.list_segments(task) if written < old and name not in named
        ]
        for name in orphans[:most]:
            self._checkpoint.delete_segment(task, name)
        return len(orphans[:most])

    def _read(self, epoch: int) -> Manifest | None:
        return self._checkpoint.read_manifest(epoch, self._query_id)
