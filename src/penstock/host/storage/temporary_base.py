"""A base on disk that lives as long as a block."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager

from penstock.state.lmdb import LmdbBase


@contextmanager
def temporary_base() -> Iterator[LmdbBase]:
    """Open an empty base on disk for a block."""
    with tempfile.TemporaryDirectory(prefix="penstock-state-") as directory, closing(LmdbBase(directory)) as base:
        yield base
