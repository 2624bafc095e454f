"""Simulations of whole instances (`tests.host.threads.simulation`): their output is that of the test driver, and they
fail when a rule that protects it is taken out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.host.threads.simulation import faults
from tests.host.threads.simulation.programs import PROGRAMS, WAITING_PROGRAMS, Program
from tests.host.threads.simulation.simulation import FailedSimulationError, Simulation

LOT = 20
MOST_SEEDS = 300
"""A fault is found by one of the seeds from 0 to before this one."""


@pytest.mark.parametrize("programs", [PROGRAMS, WAITING_PROGRAMS], ids=["records", "waiting records"])
@pytest.mark.parametrize("first", range(0, 100, LOT))
def test_everything_is_processed_once_whatever_happens(first: int, programs: Sequence[Program]) -> None:
    for seed in range(first, first + LOT):
        Simulation(seed, programs).run()


WAITING_FAULTS = (faults.take_answers_of_other_records, faults.forget_parked_records_at_a_start)
"""Those that concern waiting records alone."""


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        (faults.wait_for_a_lost_answer, 2),
        (faults.commit_as_nobody, 1),
        (faults.commit_as_whoever_it_is_now, 15),
        (faults.rejoin_for_what_is_held, 60),
        (faults.restore_to_the_stable_end, 60),
        (faults.read_unstable_offsets, 167),
        (faults.leave_transactions_open, 101),
        (faults.punctuate_without_a_commit, 17),
        (faults.read_on_where_nothing_is, 33),
        (faults.forget_what_a_dead_worker_had_to_do, 4),
        (faults.commit_without_the_task_of_a_dead_worker, 180),
        (faults.keep_what_was_sent_before_an_error, 20),
        (faults.take_answers_of_other_records, 168),
        (faults.forget_parked_records_at_a_start, 0),
    ],
)
def test_a_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """first: the seed that is tried first, since it finds the fault; a change of the code may make another one
    better."""
    assert first < MOST_SEEDS
    fault(monkeypatch)
    programs = WAITING_PROGRAMS if fault in WAITING_FAULTS else PROGRAMS
    for seed in (*range(first, MOST_SEEDS), *range(first)):
        try:
            Simulation(seed, programs).run()
        except FailedSimulationError:
            return
    pytest.fail(f"the simulations 0 to {MOST_SEEDS - 1} have not found it")
