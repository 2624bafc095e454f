"""The start offset and the compacted part of a log.

Its other files do not show them. Contains the file `checkpoint` of a partition. Not here: the effect of the offsets on
the log (log.py).

Rule: the checkpoint is on disk, with its name, before any file is removed that it makes obsolete.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final, NamedTuple, Self

from crc32c import crc32c

from penstock_broker.durable import sync_path, write_durably
from penstock_broker.topic_config import LogConfig

CHECKPOINT: Final = "checkpoint"
"""Name of the file in the directory of a partition."""

_log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    """The content of the file: two offsets."""

    log_start_offset: int = 0
    first_dirty_offset: int = 0

    @classmethod
    def read(cls, directory: Path, name: str) -> Self:
        """Return the content of the file; a damaged file is logged and counts as missing.

        Args:
            directory: the directory of the partition; it contains the file.
            name: topic and partition, for messages.

        Raises:
            OSError: it cannot be read.
        """
        path = directory / CHECKPOINT
        try:
            content, _, checksum = path.read_bytes().partition(b"\n")
            if checksum and int(checksum, 16) != crc32c(content):
                raise ValueError("its checksum is wrong")
            return cls(**json.loads(content))
        except (ValueError, TypeError) as error:
            _log.warning("%s: cannot read %s, so records that were deleted may be back: %s", name, path, error)
            return cls()

    def may_have_gaps(self, config: LogConfig) -> bool:
        """Return whether compaction may have left gaps in the offsets of the log."""
        return config.compact or self.first_dirty_offset > 0

    def write(self, directory: Path) -> None:
        """Write the file.

        Args:
            directory: the directory of the partition.

        Raises:
            OSError: it cannot be written.
        """
        content = json.dumps(self._asdict()).encode()
        write_durably(directory / CHECKPOINT, b"%b\n%08x" % (content, crc32c(content)))
        sync_path(directory)
