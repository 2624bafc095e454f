"""A disk for a single test: an ext4 image behind a loop device. It can be filled, and lose its power: what the file
system had not brought to the image by then is gone.

Needs root and loop devices: `why_not` says what is missing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.waiting import until

_TIMEOUT_SECONDS = 120
_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_WITHOUT_FLUSHING = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH


class LoopDisk:
    """A mounted disk; a context manager that removes it."""

    def __init__(self, directory: Path, megabytes: int) -> None:
        """Make and mount nothing yet. directory: for the image and the place where it is mounted."""
        self._image, self._megabytes = directory / "disk.img", megabytes
        self.path = directory / "disk"
        """Where it is mounted."""

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(self._megabytes << 20)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(subprocess.CalledProcessError):
            _run("umount", "--lazy", str(self.path))
        self._image.unlink(missing_ok=True)

    def lose_power(self, kill: Callable[[], None]) -> None:
        """Go on with what is on the disk now; everything that uses it must stand still, and is ended by `kill`."""
        # The file system writes nothing more, not even its journal: a copy of the image would not be of one moment.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING))
        finally:
            os.close(descriptor)
        kill()
        if not until(self._is_unmounted, _TIMEOUT_SECONDS):  # a process that was just killed may still hold it
            raise TimeoutError(f"{self.path} is still in use")
        self._mount()

    def _is_unmounted(self) -> bool:
        with suppress(subprocess.CalledProcessError):
            _run("umount", str(self.path))
            return True
        return False

    def fill(self) -> None:
        """Take all of its room."""
        with suppress(OSError), (self.path / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(1 << 20))
                filler.flush()
                os.fsync(filler.fileno())

    def empty(self) -> None:
        """Give the room back."""
        (self.path / "filler").unlink(missing_ok=True)

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))


@lru_cache(maxsize=1)
def why_not() -> str | None:
    """Return why there can be no such disk on this machine, None if there can."""
    for command in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(command) is None:
            return f"there is no {command}"
    if os.geteuid() != 0:
        return "only root may mount"
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-loop-") as directory, LoopDisk(Path(directory), 8):
            return None
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]} fails: {error.stderr.decode(errors='replace').strip()}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_SECONDS)
