"""The output of user functions' print in workers, kept for the program that started them.

The text is sent with the report of the task, and the driver prints it when the epoch is committed: once, however often
the epoch was tried.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

MAXIMUM_CHARACTERS = 64 * 1024
"""Characters kept of one task in one epoch."""


class PrintBuffer(io.TextIOBase):
    """Collects printed text up to MAXIMUM_CHARACTERS; counts the rest."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._dropped = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Add `text`."""
        room = MAXIMUM_CHARACTERS - self._size
        self._parts.append(text[:room])
        self._size += min(len(text), room)
        self._dropped += max(len(text) - room, 0)
        return len(text)

    def text(self) -> str:
        """Return the printed text."""
        rest = (
            f"\n... and {self._dropped} more characters that one task printed in one epoch\n" if self._dropped else ""
        )
        return "".join(self._parts) + rest


@contextmanager
def captured_print() -> Iterator[PrintBuffer]:
    """Redirect print inside the block to a buffer."""
    buffer = PrintBuffer()
    with redirect_stdout(buffer):
        yield buffer
