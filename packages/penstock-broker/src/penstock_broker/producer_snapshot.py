"""Snapshot files of a partition's producer state, which spare a start from reading the log.

Contains their names, their bytes, and the choice of the valid one. Not here: the state (producer_state.py).

Rules, as in Kafka: the name of a snapshot is the offset of the first batch that it does not cover. One is written when
a segment begins and at a clean stop, and the last two are kept. A damaged snapshot is ignored; the previous one is used
instead, or the state is rebuilt from the whole log. A snapshot beyond the log's end is removed, because it covers
batches that were lost in a power failure.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from crc32c import crc32c

from penstock_broker.common.log_limits import limit_rate
from penstock_broker.durable import write_durably
from penstock_broker.producer_state import ProducerState

_FORMAT: Final = 1
_KEPT: Final = 2
_CHECKSUM_SIZE: Final = 4
_SUFFIX: Final = ".snapshot"


_log = limit_rate(logging.getLogger(__name__), up_to=logging.ERROR)


class ProducerSnapshots:
    """The snapshots of one partition.

    Args:
        directory: the directory of the partition.
        name: topic and partition, for messages.

    Attributes:
        offset: the offset after the last batch covered by the last snapshot; 0 without a snapshot.
    """

    __slots__ = ("_directory", "_name", "offset")

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self.offset = 0

    def read_last(self, end_offset: int) -> ProducerState:
        """Return the state in the last valid snapshot, or an empty state.

        Args:
            end_offset: the end of the log.
        """
        for path in self._paths():
            if int(path.stem) > end_offset:
                path.unlink()
                continue
            content = path.read_bytes()
            checksum, content = content[:_CHECKSUM_SIZE], content[_CHECKSUM_SIZE:]
            # The checksum of no bytes is 0, so an empty file or a file of zeros would match.
            if content and int.from_bytes(checksum, "big") == crc32c(content):
                found = json.loads(content)
                if found["format"] == _FORMAT:
                    self.offset = int(path.stem)
                    return ProducerState.load(found["producers"])
        return ProducerState()

    def write(self, offset: int, producers: ProducerState) -> None:
        """Write a snapshot if possible, and remove obsolete ones.

        Args:
            offset: the offset after the last batch covered by the state.
            producers: the state.
        """
        if offset == self.offset:
            return
        content = json.dumps({"format": _FORMAT, "producers": producers.dump()}).encode()
        path = self._directory / f"{offset:020d}{_SUFFIX}"
        try:
            write_durably(path, crc32c(content).to_bytes(_CHECKSUM_SIZE, "big") + content)
            for old in self._paths()[_KEPT:]:
                old.unlink()
            self.offset = offset
        except OSError as error:
            _log.warning("%s: cannot write the state of producers; a start will read more: %s", self._name, error)

    def _paths(self) -> list[Path]:
        return sorted(self._directory.glob(f"*{_SUFFIX}"), reverse=True)


def newest_snapshot(names: Iterable[str]) -> int:
    """Return the largest offset of a snapshot, which the log had reached, or 0.

    Args:
        names: the names of the files of a partition.
    """
    return max((int(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX)), default=0)
