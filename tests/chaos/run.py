"""What a run of chaos is given by its environment: for how long, from which seed, on which brokers."""

from __future__ import annotations

import os
from typing import Protocol

from tests.support.seeds import seed_of_run

MINUTES = float(os.environ.get("PENSTOCK_CHAOS_MINUTES") or 0)
SEED = seed_of_run("PENSTOCK_CHAOS_SEED", fixed=11)
BROKERS = os.environ.get("PENSTOCK_CHAOS_BROKERS") or ("1", "embedded")[SEED % 2]


class Broker(Protocol):
    """A broker that can be killed and started again on its data, at the same address."""

    @property
    def bootstrap_servers(self) -> str:
        """Its address."""
        ...

    def kill(self) -> None:
        """End it with SIGKILL."""
        ...

    def resume(self) -> None:
        """Start it again, and wait until it serves."""
        ...
