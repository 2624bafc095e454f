"""Operators that look up what other nodes store."""

from __future__ import annotations


class StoreReader:
    """An operator that reads stores which it never writes."""

    def read_stores(self) -> tuple[str, ...]:
        """Return the names of these stores; global stores are among them."""
        raise NotImplementedError
