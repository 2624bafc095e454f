"""The messages between driver and source process of one query, as files of a directory.

Each run of a query has a mailbox of its own, so that no run reads the files of another. A session of this machine has
it on a local disk. With Spark Connect the source process runs on the server, and the mailbox is in the file system of
the checkpoint, which both can reach.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum
from pathlib import Path

from penstock.host.storage.files import Files
from penstock.private_files import private_directory


class Signal(Enum):
    """A message without content. It is there, or it is not."""

    STOP = "stop"
    """From the driver: end the query."""
    STOPPED = "stopped"
    """From the source process: it has seen STOP between two epochs, and plans no more."""
    PAUSE = "pause"
    """From the driver: plan no epoch while this is there."""
    PAUSED = "paused"
    """From the source process: it has seen PAUSE."""
    TO_END = "to-end"
    """From the driver: end at the ends that the topics have at the start. For a Spark without a planned end."""
    AT_END = "at-end"
    """From the source process: all epochs up to those ends are planned and committed."""


def clear_mailboxes(parent: Files) -> None:
    """Delete the mailboxes below `parent`, of earlier queries.

    Processes of a query that has just ended may still write there, and the next query has another directory: what
    cannot be deleted now stays until the start after it.
    """
    with suppress(OSError):
        parent.clear()


class Mailbox:
    """The mailbox of one run of a query. Any number of processes may have it open.

    A local directory is created by the driver only: after the end of the query, a late message does not bring it back.

    Args:
        uri: a path, or a URI of a file system that pyarrow supports. Nothing is read before it is needed.
    """

    def __init__(self, uri: str) -> None:
        self._files = Files(uri)

    def create(self) -> None:
        """Create the directory, private to this user, unless its file system has no need of it."""
        local = self._files.local_path
        if local is not None:
            private_directory(Path(local))

    def send(self, signal: Signal) -> None:
        """Send `signal`; raises OSError as `write`."""
        self.write(signal.value, b"")

    def withdraw(self, signal: Signal) -> None:
        """Withdraw `signal`, if it was sent."""
        self._files.delete(signal.value)

    def has(self, signal: Signal) -> bool:
        """Return whether `signal` was sent, and not withdrawn."""
        return self.read(signal.value) is not None

    def write(self, name: str, content: bytes) -> None:
        """Write or replace the message `name`; raises OSError if the directory is gone or cannot be written."""
        local = self._files.local_path
        if local is not None and not os.path.isdir(local):
            raise FileNotFoundError(local)
        self._files.write(name, content)

    def read(self, name: str) -> bytes | None:
        """Return the message `name`, None if it was not written."""
        return self._files.read(name)
