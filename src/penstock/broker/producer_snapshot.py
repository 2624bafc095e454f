"""Files with the state of a partition's producers, so that a start need not read the whole log for it.

Contains their names, their bytes, and which one counts. Not here: the state (producer_state.py).

Rules, as in Kafka: a snapshot is named after the offset whose batch is the first that it does not know. One is written
when a segment begins and at a clean stop, and the last two are kept. A damaged one does not count; then the one before
it does, or the state is rebuilt from the whole log. One beyond the log's end is removed, because it knows batches that
a loss of power took.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from crc32c import crc32c

from penstock.broker.durable import write_durably
from penstock.broker.producer_state import ProducerState

_FORMAT: Final = 1
_KEPT: Final = 2
_CHECKSUM_SIZE: Final = 4
_SUFFIX: Final = ".snapshot"


def write_snapshot(directory: Path, offset: int, producers: ProducerState) -> None:
    """Write a snapshot, and remove those that are no longer needed.

    Args:
        directory: the directory of the partition.
        offset: the offset after the last batch that the state knows.
        producers: the state.

    Raises:
        OSError: it cannot be written.
    """
    content = json.dumps({"format": _FORMAT, "producers": producers.dump()}).encode()
    path = directory / f"{offset:020d}{_SUFFIX}"
    write_durably(path, crc32c(content).to_bytes(_CHECKSUM_SIZE, "big") + content)
    for old in _snapshots(directory)[_KEPT:]:
        old.unlink()


def read_last_snapshot(directory: Path, end_offset: int) -> tuple[ProducerState, int]:
    """Return the state in the last snapshot that counts, and its offset; an empty state and 0 if there is none.

    Args:
        directory: the directory of the partition.
        end_offset: the end of the log.
    """
    for path in _snapshots(directory):
        if int(path.stem) > end_offset:
            path.unlink()
            continue
        content = path.read_bytes()
        checksum, content = content[:_CHECKSUM_SIZE], content[_CHECKSUM_SIZE:]
        # The checksum of nothing is 0, so an empty file, and one of zeros, would match.
        if content and int.from_bytes(checksum, "big") == crc32c(content):
            found = json.loads(content)
            if found["format"] == _FORMAT:
                return ProducerState.load(found["producers"]), int(path.stem)
    return ProducerState(), 0


def newest_snapshot(names: Iterable[str]) -> int:
    """Return the largest offset of a snapshot, which the log had reached; 0 if there is none.

    Args:
        names: the names of the files of a partition.
    """
    return max((int(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX)), default=0)


def _snapshots(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{_SUFFIX}"), reverse=True)
