"""The end of a log that recovery truncates, and the file that keeps its batches.

Not here: the position of the cut (log_loader.py).
"""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from penstock_broker.common.private_files import open_private
from penstock_broker.segment_scan import scan_damaged

CUT_SUFFIX: Final = ".cut"
"""File name suffix of batches removed by recovery; a number may follow."""


class Cut(NamedTuple):
    """The end of a segment that recovery removed.

    Args:
        size: its size in bytes.
        path: the file that keeps it; None if it holds no whole batch.
        records: the number of records in its whole batches.
        first_offset: the first offset of these batches; -1 without batches.
        next_offset: the offset after the last of these batches; -1 without batches.
    """

    size: int
    path: Path | None = None
    records: int = 0
    first_offset: int = -1
    next_offset: int = -1


def keep_cut(path: Path, position: int, first_offset: int) -> Cut:
    """Copy the end of a segment to another file, if it contains whole batches.

    Args:
        path: the file of the segment.
        position: start of the end, in bytes.
        first_offset: the first offset that its batches may have.

    Raises:
        OSError: the file cannot be read or copied.
    """
    size = path.stat().st_size - position
    found = list(scan_damaged(path, position, first_offset)) if size else []
    if not found:
        return Cut(size)
    kept_path = next(
        kept_path
        for number in count()
        if not (kept_path := path.with_name(f"{path.name}{CUT_SUFFIX}{number or ''}")).exists()
    )
    with path.open("rb") as file, open_private(kept_path, "wb") as kept:
        file.seek(position)
        shutil.copyfileobj(file, kept)
        kept.flush()
        os.fsync(kept.fileno())
    records = sum(header.record_count for header in found)
    return Cut(size, kept_path, records, found[0].base_offset, found[-1].next_offset)
