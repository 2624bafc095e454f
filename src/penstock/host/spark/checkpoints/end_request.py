"""The request to an application to process its present input and end, from another process.

It is a file of the checkpoint, `requests/end`. A start deletes the request of an earlier run.
"""

from __future__ import annotations

from typing import Final

from penstock.host.storage.files import Files

_PATH: Final = "requests/end"


class EndRequest:
    """The request for the application of a checkpoint.

    Args:
        checkpoint: a path, or a URI of a file system that pyarrow supports.
    """

    def __init__(self, checkpoint: str) -> None:
        self._files = Files(checkpoint)

    def send(self) -> None:
        """Ask the application to end at the ends that its inputs have when it sees the request."""
        self._files.write(_PATH, b"")

    def withdraw(self) -> None:
        """Delete the request. An application that has seen it ends nevertheless."""
        self._files.delete(_PATH)

    def is_sent(self) -> bool:
        """Return whether the request is there."""
        return self._files.read(_PATH) is not None
