"""Fair scheduling of an application process between its topologies, by weights (`penstock.topology.weight`).

The number of places limits the simultaneous runs: one place if topologies process in threads, because only one thread
at a time executes Python; one place per core if they process in worker processes. The next run belongs to the topology
with the least time in relation to its weight, whether its run is waiting or about to follow: without a short wait for
the latter, topologies would simply alternate, whatever their weights. Rules:

- If there is a place for each runner (a thread or a worker process), no runner waits.
- No runner waits for one without work, or longer than `PATIENCE_NS` for one with work. The wait counts as time of the
  latter's topology.
- A run that takes longer than `LONGEST_NS` no longer keeps others from running. All of its time is counted.
- A run that has waited for `MOST_WAIT_NS` goes first, whatever the weights.
- A runner that returns after a rest gives its topology no claim to the time of the rest, except for `CREDIT_NS`: a
  commit does not cost a topology its share, and a topology has no claim to places that it could not use.
- The flush of a commit is counted, but does not wait for a turn: its transaction is open, and has a timeout.
- As long as no topology has a configured weight, there are no turns: all run freely.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

PATIENCE_NS: Final = 20_000_000
LONGEST_NS: Final = 1_000_000_000
MOST_WAIT_NS: Final = 5_000_000_000  # half of the default timeout of transactions
CREDIT_NS: Final = 50_000_000


class ScheduleShare:
    """The share of one topology in a schedule.

    Args:
        weight: 1 or more.
    """

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.used = 0.0
        """The time (ns) used so far, divided by the weight."""

    def take(self, nanoseconds: int) -> None:
        """Add time used by the topology."""
        self.used += nanoseconds / self.weight


class Runner:
    """A source of successive runs of one topology: its thread or a worker process.

    Args:
        share: the share of the topology.
    """

    def __init__(self, share: ScheduleShare) -> None:
        self.share = share
        self.is_waiting = False
        self.asked_at = 0
        self.began_at = 0
        self.away_since = 0


class FairSchedule:
    """Selects the next runner; it has no clock and no thread. Times are in ns.

    Args:
        places: maximum number of simultaneous runs.
    """

    def __init__(self, places: int = 1) -> None:
        self._places = places
        self._competing: list[Runner] = []
        self._running: list[Runner] = []
        self._latest = 0.0
        """The maximum time used by a share at the beginning of one of its runs."""
        self._held_for: dict[Runner, int] = {}
        """The runners with reserved places while others wait, and the start of each reservation."""

    def ask(self, runner: Runner, now: int) -> None:
        """Add `runner` to those that wait for their turn."""
        if runner not in self._competing:
            runner.share.used = max(runner.share.used, self._latest - CREDIT_NS)
            self._competing.append(runner)
        runner.is_waiting, runner.asked_at = True, now

    def wait_ns(self, runner: Runner, now: int) -> int:
        """Return 0 if the waiting `runner` may begin, otherwise the time to wait."""
        self._running = [each for each in self._running if now - each.began_at < LONGEST_NS]
        free = self._places - len(self._running)
        if free <= 0:
            return min(each.began_at for each in self._running) + LONGEST_NS - now
        while runner not in (first := self._first(free, now)):
            away = [each for each in first if not each.is_waiting]
            if not away:
                return LONGEST_NS
            longest_away = min(away, key=lambda each: each.away_since)
            left = longest_away.away_since + PATIENCE_NS - now
            if left > 0:
                for each in away:
                    self._held_for.setdefault(each, now)
                return left
            self.rest(longest_away)
        return 0

    def _first(self, number: int, now: int) -> list[Runner]:
        """Return the first `number` runners in the order of their turns."""

        def order(runner: Runner) -> tuple[bool, int, float, bool]:
            is_late = runner.is_waiting and now - runner.asked_at >= MOST_WAIT_NS
            return not is_late, runner.asked_at if is_late else 0, runner.share.used, not runner.is_waiting

        return sorted((each for each in self._competing if each not in self._running), key=order)[:number]

    def waiting(self) -> int:
        """Return the number of waiting runners."""
        return sum(runner.is_waiting for runner in self._competing)

    def begin(self, runner: Runner, now: int) -> None:
        """Begin a run of `runner`."""
        for kept_for, since in self._held_for.items():
            kept_for.share.take(min(now - since, PATIENCE_NS))
        self._held_for.clear()
        runner.is_waiting, runner.began_at = False, now
        self._running.append(runner)
        self._latest = max(self._latest, runner.share.used)

    def end(self, runner: Runner, now: int) -> None:
        """End the run of `runner`."""
        runner.share.take(now - runner.began_at)
        runner.away_since = now
        if runner in self._running:
            self._running.remove(runner)

    def rest(self, runner: Runner) -> None:
        """Remove `runner`, which has no work for now, unless it runs or waits."""
        if not runner.is_waiting and runner not in self._running:
            self.leave(runner)

    def leave(self, runner: Runner) -> None:
        """Remove `runner`, even if it waits."""
        if runner in self._competing:
            self._competing.remove(runner)
        if not self.waiting():
            self._held_for.clear()


class Turns:
    """The turns of the competing topologies of one application process.

    Args:
        nanoseconds: returns the time by which runs are measured.
        places: maximum number of simultaneous runs.
    """

    def __init__(self, nanoseconds: Callable[[], int], places: int = 1) -> None:
        self._nanoseconds = nanoseconds
        self._changed = threading.Condition()
        self._schedule = FairSchedule(places)
        self._are_taken = False

    def join(self, weight: int | None) -> TopologyTurns:
        """Return the turns of a topology. weight: 1 or more, None if not configured, which counts as 1."""
        with self._changed:
            self._are_taken |= weight is not None
        return TopologyTurns(self, ScheduleShare(weight or 1))

    def waiting(self) -> int:
        """Return the number of runs that wait for their turn."""
        with self._changed:
            return self._schedule.waiting()

    def begin(self, turn: Turn) -> None:
        """Wait for the turn of `turn`, if turns apply to it."""
        with self._changed:
            if not self._are_taken or turn.has_left:
                return
            self._schedule.ask(turn.runner, self._nanoseconds())
            while not turn.has_left:
                wait = self._schedule.wait_ns(turn.runner, self._nanoseconds())
                if wait == 0:
                    self._schedule.begin(turn.runner, self._nanoseconds())
                    turn.is_taken = True
                    self._changed.notify_all()  # another place may be free
                    return
                self._changed.wait(wait / 1e9)

    def end(self, turn: Turn) -> None:
        """End `turn` if it is taken, so that the next one can begin."""
        with self._changed:
            self._end(turn)

    def _end(self, turn: Turn) -> None:
        if turn.is_taken:
            turn.is_taken = False
            self._schedule.end(turn.runner, self._nanoseconds())
            self._changed.notify_all()

    def leave(self, turn: Turn) -> None:
        """Exclude `turn` from all further turns."""
        with self._changed:
            turn.has_left = True
            self._end(turn)
            self._schedule.leave(turn.runner)
            self._changed.notify_all()

    def rest(self, turns: Iterable[Turn]) -> None:
        """Make runners stop waiting for idle ones of `turns`, until these ask again.

        Those that run or wait are not idle.
        """
        with self._changed:
            for turn in turns:
                self._schedule.rest(turn.runner)
            self._changed.notify_all()

    def count(self, share: ScheduleShare, nanoseconds: int) -> None:
        """Count time that a topology has used without a turn."""
        with self._changed:
            share.take(nanoseconds)


class TopologyTurns:
    """The turns of one topology.

    Args:
        turns: the turns of the process.
        share: the share of the topology.
    """

    def __init__(self, turns: Turns, share: ScheduleShare) -> None:
        self._turns = turns
        self._share = share
        self._of_runners: list[Turn] = []

    def of_runner(self, number: int = 0) -> Turn:
        """Return the turn of another thread or worker process of this topology. number: that of the worker."""
        turn = Turn(self._turns, self._share, number)
        self._of_runners = [*(each for each in self._of_runners if not each.has_left), turn]
        return turn

    def rest(self, busy: Collection[int] = ()) -> None:
        """Make other topologies stop waiting for this idle one until its next run; thread-safe.

        busy: the numbers of worker processes with work.
        """
        self._turns.rest([turn for turn in self._of_runners if turn.number not in busy])

    def count(self, nanoseconds: int) -> None:
        """Count time (ns) that the topology has used without a turn; thread-safe."""
        self._turns.count(self._share, nanoseconds)

    def leave(self) -> None:
        """Take no further turns, and let waiting runs begin; thread-safe."""
        for turn in self._of_runners:
            turn.leave()


class Turn:
    """The turn of one thread or worker process, for its successive runs.

    Args:
        turns: the turns of the process.
        share: the share of the topology.
        number: the number of the worker process.
    """

    def __init__(self, turns: Turns, share: ScheduleShare, number: int) -> None:
        self._turns = turns
        self.number = number
        self.runner = Runner(share)
        self.is_taken = False
        self.has_left = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn, and keep it until the end of the block."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Wait for the turn, and keep it until `end` or `leave`, perhaps from another thread."""
        self._turns.begin(self)

    def end(self) -> None:
        """End the turn if it is taken; thread-safe."""
        self._turns.end(self)

    def leave(self) -> None:
        """End the turn, take no further ones, and release a waiting run; thread-safe."""
        self._turns.leave(self)


class ApplicationTurns(NamedTuple):
    """The turns of the topologies of one application process.

    in_threads: for topologies that process in a thread each. in_workers: for topologies with worker processes.
    """

    in_threads: Turns
    in_workers: Turns
