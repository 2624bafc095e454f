"""Shares the processing time of one application process between its topologies, by their weights
(`penstock.topology.weight`).

As many runs as there are places have a turn at the same time: one place where topologies process in threads, because
one thread at a time executes Python; a place for each core where they process in worker processes. The next run is of
the topology that has had the least time for its weight, whether its run is waiting or will follow in a moment: without
a short wait for the latter, topologies with any weights would just alternate. Rules:

- If there is a place for each runner (a thread or a worker process), nobody waits.
- Nobody waits for a runner that has nothing to process, and no longer than `PATIENCE_NS` for one that has. That time
  counts as that of its topology.
- A run that takes longer than `LONGEST_NS` no longer keeps others from running. What it takes is counted all the same.
- A run that has waited for `MOST_WAIT_NS` goes first, whatever the weights are.
- A runner that comes back after a rest gives its topology no claim to the time of the rest, except for `CREDIT_NS`: so
  a commit does not cost a topology its share, and a topology has no claim to places that it could not use.
- What commits flush is counted, but waits for no turn: a transaction is open, and has a time-out.
- While no topology has been given a weight, there are no turns: all run when they like.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

PATIENCE_NS: Final = 20_000_000
LONGEST_NS: Final = 1_000_000_000
MOST_WAIT_NS: Final = 5_000_000_000  # half of the time after which brokers end a transaction by default
CREDIT_NS: Final = 50_000_000


class ScheduleShare:
    """The part of one topology in a schedule."""

    def __init__(self, weight: int) -> None:
        """Have had no time. weight: 1 or more."""
        self.weight = weight
        self.used = 0.0
        """The time (ns) that it has had, divided by its weight."""

    def take(self, nanoseconds: int) -> None:
        """Take that the topology has had so much time."""
        self.used += nanoseconds / self.weight


class Runner:
    """What makes the runs of one topology, one after the other: its processing thread, or one of its worker
    processes."""

    def __init__(self, share: ScheduleShare) -> None:
        """Have had no run. share: of its topology."""
        self.share = share
        self.is_waiting = False
        self.asked_at = 0
        self.began_at = 0
        self.away_since = 0


class FairSchedule:
    """Decides who runs next; no clock and no thread. Times are in ns."""

    def __init__(self, places: int = 1) -> None:
        """Have nobody. places: how many run at the same time."""
        self._places = places
        self._competing: list[Runner] = []
        self._running: list[Runner] = []
        self._latest = 0.0
        """What the shares that ran had used at most when their runs began."""
        self._held_for: dict[Runner, int] = {}
        """For whom places are kept though others wait, and since when."""

    def ask(self, runner: Runner, now: int) -> None:
        """Take that `runner` waits for its turn."""
        if runner not in self._competing:
            runner.share.used = max(runner.share.used, self._latest - CREDIT_NS)
            self._competing.append(runner)
        runner.is_waiting, runner.asked_at = True, now

    def wait_ns(self, runner: Runner, now: int) -> int:
        """Return 0 if `runner`, which waits, may begin, else after how long to ask again if nothing happens."""
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
        """Return the first `number` runners in the order in which they may begin."""

        def order(runner: Runner) -> tuple[bool, int, float, bool]:
            is_late = runner.is_waiting and now - runner.asked_at >= MOST_WAIT_NS
            return not is_late, runner.asked_at if is_late else 0, runner.share.used, not runner.is_waiting

        return sorted((each for each in self._competing if each not in self._running), key=order)[:number]

    def waiting(self) -> int:
        """Return how many runners wait."""
        return sum(runner.is_waiting for runner in self._competing)

    def begin(self, runner: Runner, now: int) -> None:
        """Take that a run of `runner` begins."""
        for kept_for, since in self._held_for.items():
            kept_for.share.take(min(now - since, PATIENCE_NS))
        self._held_for.clear()
        runner.is_waiting, runner.began_at = False, now
        self._running.append(runner)
        self._latest = max(self._latest, runner.share.used)

    def end(self, runner: Runner, now: int) -> None:
        """Take that the run of `runner` has ended."""
        runner.share.take(now - runner.began_at)
        runner.away_since = now
        if runner in self._running:
            self._running.remove(runner)

    def rest(self, runner: Runner) -> None:
        """Take that `runner` has nothing to process for now, if it neither runs nor waits."""
        if not runner.is_waiting and runner not in self._running:
            self.leave(runner)

    def leave(self, runner: Runner) -> None:
        """Forget `runner`, though it may wait."""
        if runner in self._competing:
            self._competing.remove(runner)
        if not self.waiting():
            self._held_for.clear()


class Turns:
    """The turns of topologies of one application process whose runs compete."""

    def __init__(self, nanoseconds: Callable[[], int], places: int = 1) -> None:
        """Have no topology. nanoseconds: returns the time by which runs are measured. places: how many run at the same
        time."""
        self._nanoseconds = nanoseconds
        self._changed = threading.Condition()
        self._schedule = FairSchedule(places)
        self._are_taken = False

    def join(self, weight: int | None) -> TopologyTurns:
        """Return the turns of a topology. weight: 1 or more; None if none was given, which counts as 1."""
        with self._changed:
            self._are_taken |= weight is not None
        return TopologyTurns(self, ScheduleShare(weight or 1))

    def waiting(self) -> int:
        """Return how many runs wait for their turn."""
        with self._changed:
            return self._schedule.waiting()

    def begin(self, turn: Turn) -> None:
        """Wait until it is the turn of `turn`, if it has to take one."""
        with self._changed:
            if not self._are_taken or turn.has_left:
                return
            self._schedule.ask(turn.runner, self._nanoseconds())
            while not turn.has_left:
                wait = self._schedule.wait_ns(turn.runner, self._nanoseconds())
                if wait == 0:
                    self._schedule.begin(turn.runner, self._nanoseconds())
                    turn.is_taken = True
                    self._changed.notify_all()  # there may be another place
                    return
                self._changed.wait(wait / 1e9)

    def end(self, turn: Turn) -> None:
        """Let the next one have its turn, if `turn` has it."""
        with self._changed:
            self._end(turn)

    def _end(self, turn: Turn) -> None:
        if turn.is_taken:
            turn.is_taken = False
            self._schedule.end(turn.runner, self._nanoseconds())
            self._changed.notify_all()

    def leave(self, turn: Turn) -> None:
        """Have `turn` take part no more."""
        with self._changed:
            turn.has_left = True
            self._end(turn)
            self._schedule.leave(turn.runner)
            self._changed.notify_all()

    def rest(self, turns: Iterable[Turn]) -> None:
        """Let nobody wait for those of `turns` that neither run nor wait, until they ask again."""
        with self._changed:
            for turn in turns:
                self._schedule.rest(turn.runner)
            self._changed.notify_all()

    def count(self, share: ScheduleShare, nanoseconds: int) -> None:
        """Count time that a topology has had without a turn."""
        with self._changed:
            share.take(nanoseconds)


class TopologyTurns:
    """The turns of one topology."""

    def __init__(self, turns: Turns, share: ScheduleShare) -> None:
        """Made by `Turns.join`."""
        self._turns = turns
        self._share = share
        self._of_runners: list[Turn] = []

    def of_runner(self, number: int = 0) -> Turn:
        """Return the turn of another thread or worker process of this topology. number: of the latter."""
        turn = Turn(self._turns, self._share, number)
        self._of_runners = [*(each for each in self._of_runners if not each.has_left), turn]
        return turn

    def rest(self, busy: Collection[int] = ()) -> None:
        """Let nobody wait for this topology until its next run: there is nothing to process for now. From any thread.
        busy: the numbers of the worker processes to which that does not apply."""
        self._turns.rest([turn for turn in self._of_runners if turn.number not in busy])

    def count(self, nanoseconds: int) -> None:
        """Count time (ns) that the topology has had without a turn. From any thread."""
        self._turns.count(self._share, nanoseconds)

    def leave(self) -> None:
        """Take no turns any more, and have runs that wait begin. From any thread."""
        for turn in self._of_runners:
            turn.leave()


class Turn:
    """What the runs of one thread or worker process take, one after the other."""

    def __init__(self, turns: Turns, share: ScheduleShare, number: int) -> None:
        """Made by `TopologyTurns.of_runner`."""
        self._turns = turns
        self.number = number
        self.runner = Runner(share)
        self.is_taken = False
        self.has_left = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn, and have it until the block ends, in any way."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Wait for the turn, and have it until `end` or `leave`, which may come from another thread."""
        self._turns.begin(self)

    def end(self) -> None:
        """Let others have their turns, if this one is taken. From any thread."""
        self._turns.end(self)

    def leave(self) -> None:
        """End the turn if it is taken, take none any more, and have a run that waits begin. From any thread."""
        self._turns.leave(self)


class ApplicationTurns(NamedTuple):
    """The turns of the topologies of one application process. in_threads: of those that process in a thread each.
    in_workers: of those with worker processes."""

    in_threads: Turns
    in_workers: Turns
