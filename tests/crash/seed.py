"""How many of the kills a run makes: all of them, or a sample that a seed draws. PENSTOCK_CRASH_SEED repeats it."""

from __future__ import annotations

import os
import zlib

ALL = os.environ.get("PENSTOCK_CRASH") == "all"
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))  # the same in all workers of a parallel run
SEED = int(os.environ.get("PENSTOCK_CRASH_SEED") or zlib.crc32(_RUN.encode()) % 10_000)
