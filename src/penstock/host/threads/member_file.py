"""Which member of the group the last instance with this state directory was.

An instance that was killed has not left the group, which gives its tasks to nobody until the session ends. Whoever
holds the lock of the state directory knows that it is dead, and lets it leave.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from penstock.private_files import open_private


class MemberFile:
    """The id of a member, in a file."""

    def __init__(self, path: Path) -> None:
        """Read nothing yet."""
        self._path = path
        self._kept: str | None = None

    def read(self) -> str:
        """Return the id of the member that has not left, empty if there is none."""
        with suppress(OSError, UnicodeDecodeError):
            return self._path.read_text()
        return ""

    def keep(self, member_id: str) -> None:
        """Write which member this instance is, if that has changed; empty for none. A file that cannot be written only
        makes the next instance wait."""
        if member_id == self._kept:
            return
        self._kept = member_id
        with suppress(OSError):
            if not member_id:
                self._path.unlink(missing_ok=True)
                return
            made = self._path.with_suffix(".new")
            with open_private(made, "wb") as file:
                file.write(member_id.encode())
            os.replace(made, self._path)
