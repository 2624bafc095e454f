"""The group member of the last instance with this state directory.

A killed instance has not left the group, which assigns its tasks to no other member until the session ends. The holder
of the state directory's lock knows that the instance is dead, and makes its member leave.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from penstock.private_files import open_private


class MemberFile:
    """The id of a member, in a file. The constructor does not read it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: str | None = None

    def read(self) -> str:
        """Return the id of the member that has not left, empty if absent."""
        with suppress(OSError, UnicodeDecodeError):
            return self._path.read_text()
        return ""

    def keep(self, member_id: str) -> None:
        """Write the member id of this instance, if it has changed. An empty id deletes the file. A failed write only
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
