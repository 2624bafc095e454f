"""The locks of a program: one program per checkpoint, and one per application.id and state.dir.

They are locks of the operating system, which end with the process, however it ends. Programs on other machines are
excluded by the generation of the checkpoint and by the transactions of the sink.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Self

from penstock.errors import LockError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.storage.directories import own_checkpoint_directory
from penstock.private_files import open_private, private_directory

LOCK_FILE = "lock"


class CheckpointLock:
    """Holds the lock files of a checkpoint, and of the application's directory on this machine.

    Args:
        checkpoint: the checkpoint to lock; on a local file system it has its own lock file.
        directory: the application's directory on this machine, if any.
        application_id: of the program, for messages.
    """

    def __init__(self, checkpoint: Checkpoint, directory: Path | None, application_id: str) -> None:
        self._application_id = application_id
        self._checkpoint = checkpoint.uri
        self._local = local = None if checkpoint.local_path is None else Path(checkpoint.local_path)
        directories = [each.absolute() for each in (local, directory) if each is not None]
        self._directories = list(dict.fromkeys(directories))
        self._held: list[IO[bytes]] = []

    def acquire(self) -> None:
        """Acquire the locks; raises LockError, without holding any, if another program has one."""
        with ExitStack() as taken:
            held = [taken.enter_context(self._locked(directory)) for directory in self._directories]
            taken.pop_all()
        self._held += held

    def release(self) -> None:
        """Release the locks; harmless if they are not held."""
        while self._held:
            self._held.pop().close()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _locked(self, directory: Path) -> IO[bytes]:
        if directory == self._local:
            own_checkpoint_directory(directory)
        else:
            private_directory(directory)
        lock = open_private(directory / LOCK_FILE, "ab+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().decode(errors="replace").strip() or "unknown"
            lock.close()
            if holder == str(os.getpid()):
                raise LockError(
                    f"This program already runs {self._application_id!r} and holds {directory}: close the KafkaStreams "
                    "that runs it. Assigning another object to its name, as a notebook does when a cell runs again, "
                    "does not close it."
                ) from error
            raise LockError(
                f"Another program (pid {holder}) runs with application.id {self._application_id!r} and holds "
                f"{directory}, while this one wants to continue from the checkpoint {self._checkpoint}. Stop it first, "
                "or give this one another application.id."
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()).encode())
        lock.flush()
        return lock
