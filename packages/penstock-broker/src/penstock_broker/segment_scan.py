"""Reading of batch headers from a segment's file, in order or after damage.

Not here: the segment (segment.py), and its recovery (log_loader.py, cut.py).
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from penstock_broker.batch import BatchHeader, InvalidBatchError, check_intact
from penstock_broker.wire.record_batches import HEADER_SIZE

# The leader epoch, a small number, and the format number.
_BATCH_MARK: Final = re.compile(rb"\x00\x00..\x02", re.DOTALL)
_BATCH_MARK_AT: Final = 12


def scan(
    path: Path,
    size: int,
    first_offset: int,
    read: Callable[[memoryview], BatchHeader],
    is_gapless: bool = False,
    end_offset: int | None = None,
) -> Iterator[BatchHeader]:
    """Yield the headers of a file's batches in order, up to the first damaged one.

    Args:
        path: the file.
        size: its size, in bytes.
        first_offset: the lowest possible offset in it.
        read: returns the header at the start of a view, or raises InvalidBatchError.
        is_gapless: whether each batch begins at the end of the previous one, because the file was not compacted.
        end_offset: upper bound of the batches' end offsets, if known.

    Raises:
        OSError: it cannot be read.
    """
    if not size:
        return
    position, next_offset = 0, first_offset
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        memoryview(content) as view,
    ):
        while (header := _whole_header(view[position:size], read)) is not None:
            gap = header.base_offset - next_offset  # the checksum does not cover the offset
            follows = (gap == 0 if is_gapless else gap >= 0) and header.last_offset_delta >= 0
            if not follows or (end_offset is not None and header.next_offset > end_offset):
                break
            yield header
            position, next_offset = position + header.size, header.next_offset


def scan_damaged(path: Path, position: int, first_offset: int) -> Iterator[BatchHeader]:
    """Yield the headers of undamaged batches at any position after a given one.

    Args:
        path: the file; it is longer than the position.
        position: the position, in bytes.
        first_offset: the lowest possible offset of these batches.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        while (mark := _BATCH_MARK.search(content, position + _BATCH_MARK_AT)) is not None:
            position = mark.start() - _BATCH_MARK_AT
            with memoryview(content) as view:
                header = _whole_header(view[position:], check_intact)
            if header is None or header.base_offset < first_offset:
                position += 1
            else:
                yield header
                position += header.size


def _whole_header(rest: memoryview, read: Callable[[memoryview], BatchHeader]) -> BatchHeader | None:
    try:
        header = read(rest)
        return header if HEADER_SIZE <= header.size <= len(rest) else None
    except InvalidBatchError:
        return None
    finally:
        rest.release()
