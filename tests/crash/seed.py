"""How many of the kills a run makes: all of them, or a sample that a seed draws. PENSTOCK_CRASH_SEED repeats it."""

from __future__ import annotations

import os

from tests.support.seeds import seed_of_run

ALL = os.environ.get("PENSTOCK_CRASH") == "all"
SEED = seed_of_run("PENSTOCK_CRASH_SEED", fixed=4)
