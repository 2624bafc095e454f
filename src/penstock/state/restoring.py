"""Reads the segments from which a base is rebuilt: some files ahead of the one that is applied, and reports the
progress.

The caller passes a function that reads one file; remote files take long, so several are read at the same time. In
memory at one time are these files and one segment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from penstock.state.api import Changes
from penstock.state.segments import SegmentInfo, decode

FILES_AHEAD = 4
"""Files that are read before they are needed."""

ReadFile = Callable[[SegmentInfo], bytes]
"""Returns the bytes of a segment, or raises; called by several threads."""

Progress = Callable[[Mapping[str, int]], None]
"""Receives how many more entries have been restored, by store."""


def changes_of(
    segments: Sequence[SegmentInfo], read: ReadFile, restored: Progress = lambda entries: None
) -> Iterator[Changes]:
    """Yield the changes of each of `segments` in turn, for `Base.rebuild`; `restored` is called when they were taken.

    Raises what `read` raises, and as `decode`.
    """
    for info, data in zip(segments, _read_ahead(segments, read), strict=True):
        changes = decode(data, info.id).changes
        entries = {store: len(changed) for store, changed in changes.items()}
        yield changes
        del changes  # before the next is made
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
