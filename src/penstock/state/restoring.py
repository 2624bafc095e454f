"""Reads the segments for rebuilding a base, some files ahead, and reports the progress.

The caller passes a function that reads one file. Remote files are slow, so several are read at the same time. Memory
holds only these files and one segment at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from penstock.state.api import Changes
from penstock.state.segments import SegmentInfo, decode

FILES_AHEAD = 4
"""Number of files that are read ahead."""

ReadFile = Callable[[SegmentInfo], bytes]
"""Returns the bytes of a segment, or raises; called by several threads."""

Progress = Callable[[Mapping[str, int]], None]
"""Receives the number of newly restored entries, by store."""


def changes_of(
    segments: Sequence[SegmentInfo], read: ReadFile, restored: Progress = lambda entries: None
) -> Iterator[Changes]:
    """Yield the changes of each segment in order, for `Base.rebuild`.

    `restored` is called when the caller has consumed them. Raises the errors of `read` and `decode`.
    """
    for info, data in zip(segments, _read_ahead(segments, read), strict=True):
        changes = decode(data, info.id).changes
        entries = {store: len(changed) for store, changed in changes.items()}
        yield changes
        del changes  # free them before the next ones are decoded
        restored(entries)


def _read_ahead(segments: Sequence[SegmentInfo], read: ReadFile) -> Iterator[bytes]:
    with ThreadPoolExecutor(FILES_AHEAD, thread_name_prefix="penstock-restore") as pool:
        pending: deque[Future[bytes]] = deque()
        try:
            for info in segments:
                pending.append(pool.submit(read, info))
                if len(pending) > FILES_AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for each in pending:
                each.cancel()
