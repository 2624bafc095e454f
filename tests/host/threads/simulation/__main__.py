"""Runs simulations: `python -m tests.host.threads.simulation 17` one of them, with its trace; `FIRST-LAST` several.

With `waiting` after the numbers, those of programs with calls, or with parked records.
"""

from __future__ import annotations

import logging
import sys
import time

from tests.host.threads.simulation.programs import PROGRAMS, WAITING_PROGRAMS
from tests.host.threads.simulation.simulation import FailedSimulationError, Simulation


def main(numbers: str, kind: str = "") -> int:
    logging.disable()
    programs = WAITING_PROGRAMS if kind == "waiting" else PROGRAMS
    first, _, last = numbers.partition("-")
    if not last:
        simulation = Simulation(int(first), programs)
        simulation.run()
        print(simulation.story())
        return 0
    began, failed = time.process_time(), 0
    for seed in range(int(first), int(last) + 1):
        try:
            Simulation(seed, programs).run()
        except FailedSimulationError as error:
            failed += 1
            print(str(error).splitlines()[0][:300], flush=True)
    seconds, number = time.process_time() - began, int(last) - int(first) + 1
    print(f"{number - failed} passed, {failed} failed; {number / seconds:.0f} a second of CPU")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
