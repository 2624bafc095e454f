"""What a run of chaos is given by its environment: for how long, from which seed, on which brokers."""

from __future__ import annotations

import os
import zlib
from typing import Protocol

MINUTES = float(os.environ.get("PENSTOCK_CHAOS_MINUTES") or 0)
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
SEED = int(os.environ.get("PENSTOCK_CHAOS_SEED") or zlib.crc32(_RUN.encode()) % 10_000)
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
