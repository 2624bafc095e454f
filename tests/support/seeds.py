"""The seeds of a run: of the samples that tests draw from many kills, deeds and damages."""

from __future__ import annotations

import os
import zlib

FIXED = bool(os.environ.get("PENSTOCK_FIXED_SEEDS"))
"""Whether this run draws the same samples, and the same examples of properties, as all others that say so: what a
change is refused for is then due to the change. Other runs draw new ones."""

_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))  # the same in all workers of a parallel run


def seed_of_run(variable: str, fixed: int) -> int:
    """Return the seed that the environment names in `variable`, else `fixed` if seeds are fixed, else a new one."""
    if given := os.environ.get(variable):
        return int(given)
    return fixed if FIXED else zlib.crc32(_RUN.encode()) % 10_000
