"""The lock of a checkpoint: one program on this machine runs it, or changes its files, at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from penstock.errors import LockError
from penstock.host.spark.checkpoint import Checkpoint


def lock_checkpoint(checkpoint: Checkpoint, directory: Path, application_id: str) -> IO[str]:
    """Return the lock, held until it is closed or this process ends, however it ends.

    Args:
        checkpoint: what to lock.
        directory: where the file of the lock is, for a checkpoint that is not on a local file system.
        application_id: whose it is, for the error.

    Raises:
        LockError: another program holds it.
    """
    place = checkpoint.local_path or str(directory)
    os.makedirs(place, exist_ok=True)
    lock = open(os.path.join(place, "lock"), "a+")  # noqa: SIM115  # held until close
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise LockError(
            f"Another program (pid {holder}) runs with application.id {application_id!r} on the checkpoint "
            f"{checkpoint.uri}. Stop it first, or give this one another application.id."
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock
