"""The base of watchers of applications in other processes: they neither run nor change anything."""

from __future__ import annotations

from typing import Any, NoReturn

from penstock.errors import UnsupportedOperationError
from penstock.host.api import AsOf


class Watching:
    """Refuses changes to the application, for a class that implements the rest of Host."""

    def pause(self) -> NoReturn:
        """Raise UnsupportedOperationError, as do all changes to the application."""
        raise UnsupportedOperationError("Another process runs this application: this one only watches it.")

    resume = clean_up = reset = pause

    def rebalance(self, reason: str) -> None:
        """Raise UnsupportedOperationError."""
        self.pause()

    def table(self, store_name: str, as_of: AsOf | None = None) -> Any:
        """Raise UnsupportedOperationError."""
        self.pause()

    def tapped(self, node: str, limit: int) -> NoReturn:
        """Raise UnsupportedOperationError."""
        self.pause()

    def untap(self, node: str) -> None:
        """Do nothing: there are no taps."""
