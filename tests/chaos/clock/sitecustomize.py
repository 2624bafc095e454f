"""Lets the wall clock of each Python process leap: every interpreter imports this at its start, where the directory is
on its path. The file that PENSTOCK_CHAOS_CLOCK names says by how many seconds."""

import os
import time

_file = os.environ.get("PENSTOCK_CHAOS_CLOCK")
if _file:
    _time, _time_ns = time.time, time.time_ns

    def _leap() -> float:
        try:
            with open(_file) as file:
                return float(file.read() or 0)
        except (OSError, ValueError):  # between two leaps
            return 0.0

    time.time = lambda: _time() + _leap()
    time.time_ns = lambda: _time_ns() + int(_leap() * 1_000_000_000)
