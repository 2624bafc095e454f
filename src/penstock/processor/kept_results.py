"""The results of an operator inside another one, which forwards them when all of them are known."""

from __future__ import annotations

from typing import Any

from penstock.record import Record


class KeptResults:
    """Receives the results of an operator instead of the children of its node."""

    def __init__(self) -> None:
        self._records: list[Record[Any, Any]] = []

    def forward(self, record: Record[Any, Any], child_name: str | None = None) -> None:
        """Keep a result."""
        self._records.append(record)

    def take(self) -> list[Record[Any, Any]]:
        """Remove and return the results."""
        taken, self._records = self._records, []
        return taken
