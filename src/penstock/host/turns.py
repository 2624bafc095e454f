"""Shares the processing time of one process between the topologies that it runs, by their weights
(`penstock.topology.weight`).

One run at a time has the turn. The next one is of the topology that has had the least time for its weight, whether its
run is waiting or will follow in a moment: without a short wait for the latter, topologies with any weights would just
alternate. Rules:

- Nobody waits for a topology that has nothing to process, and no longer than `PATIENCE_NS` for one that has. That time
  counts as its own.
- A run that takes longer than `LONGEST_NS` no longer keeps others from running. What it takes is counted all the same.
- A run that has waited for `MOST_WAIT_NS` goes first, whatever the weights are.
- A topology that comes back after a rest has no claim to the time of its rest, except for `CREDIT_NS`: so a commit
  does not cost it its share.
- While no topology has been given a weight, there are no turns: all run when they like.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

PATIENCE_NS: Final = 20_000_000
LONGEST_NS: Final = 1_000_000_000
MOST_WAIT_NS: Final = 10_000_000_000
CREDIT_NS: Final = 50_000_000


class Share:
    """The part of one topology in a schedule."""

    def __init__(self, weight: int) -> None:
        """Have had no time. weight: 1 or more."""
        self.weight = weight
        self.used = 0.0
        """The time (ns) that it has had, divided by its weight."""
        self.is_waiting = False
        self.asked_at = 0
        self.began_at = 0
        self.away_since = 0


class FairSchedule:
    """Decides who runs next; no clock and no thread. Times are in ns."""

    def __init__(self) -> None:
        """Have nobody."""
        self._competing: list[Share] = []
        self._running: Share | None = None
        self._latest = 0.0
        """What the shares that ran had used at most when their runs began."""
        self._held_for: tuple[Share, int] | None = None
        """Who the turn is kept for though others wait, and since when."""

    def ask(self, share: Share, now: int) -> None:
        """Take that a run of `share` waits for its turn."""
        if share not in self._competing:
            share.used = max(share.used, self._latest - CREDIT_NS)
            self._competing.append(share)
        share.is_waiting, share.asked_at = True, now

    def wait_ns(self, share: Share, now: int) -> int:
        """Return 0 if the run of `share` that waits may begin, else after how long to ask again if nothing happens."""
        if self._running is not None:
            left = self._running.began_at + LONGEST_NS - now
            if left > 0:
                return left
            self._running = None
        while (first := self._first(now)) is not share:
            if first.is_waiting:
                return LONGEST_NS
            left = first.away_since + PATIENCE_NS - now
            if left > 0:
                self._held_for = self._held_for or (first, now)
                return left
            self.rest(first)
        return 0

    def _first(self, now: int) -> Share:
        late = [each for each in self._competing if each.is_waiting and now - each.asked_at >= MOST_WAIT_NS]
        if late:
            return min(late, key=lambda each: each.asked_at)
        return min(self._competing, key=lambda each: (each.used, not each.is_waiting))

    def waiting(self) -> int:
        """Return how many shares wait."""
        return sum(share.is_waiting for share in self._competing)

    def begin(self, share: Share, now: int) -> None:
        """Take that the run of `share` begins."""
        if self._held_for is not None:
            kept_for, since = self._held_for
            kept_for.used += min(now - since, PATIENCE_NS) / kept_for.weight
            self._held_for = None
        share.is_waiting, share.began_at = False, now
        self._running = share
        self._latest = max(self._latest, share.used)

    def end(self, share: Share, now: int) -> None:
        """Take that the run of `share` has ended."""
        share.used += (now - share.began_at) / share.weight
        share.away_since = now
        if self._running is share:
            self._running = None

    def rest(self, share: Share) -> None:
        """Take that `share` has nothing to process for now."""
        if not share.is_waiting:
            self.leave(share)

    def leave(self, share: Share) -> None:
        """Forget `share`, though its run may wait."""
        if share in self._competing:
            self._competing.remove(share)
        if not self.waiting():
            self._held_for = None


class Turns:
    """The turns of the topologies of one process."""

    def __init__(self, nanoseconds: Callable[[], int]) -> None:
        """Have no topology. nanoseconds: returns the time by which runs are measured."""
        self._nanoseconds = nanoseconds
        self._changed = threading.Condition()
        self._schedule = FairSchedule()
        self._are_taken = False

    def join(self, weight: int | None) -> Turn:
        """Return the turn of a topology. weight: 1 or more; None if none was given, which counts as 1."""
        with self._changed:
            self._are_taken |= weight is not None
        return Turn(self, Share(weight or 1))

    def waiting(self) -> int:
        """Return how many topologies wait for their turn."""
        with self._changed:
            return self._schedule.waiting()

    def begin(self, turn: Turn) -> bool:
        """Wait until it is the turn of `turn`; return False if it need not take one."""
        share = turn.share
        with self._changed:
            if not self._are_taken:
                return False
            self._schedule.ask(share, self._nanoseconds())
            while not turn.has_left:
                wait = self._schedule.wait_ns(share, self._nanoseconds())
                if wait == 0:
                    self._schedule.begin(share, self._nanoseconds())
                    return True
                self._changed.wait(wait / 1e9)
            self._schedule.leave(share)
            return False

    def end(self, turn: Turn) -> None:
        """Let the next one have its turn."""
        with self._changed:
            self._schedule.end(turn.share, self._nanoseconds())
            self._changed.notify_all()

    def rest(self, turn: Turn) -> None:
        """Let nobody wait for `turn` until it asks again."""
        with self._changed:
            self._schedule.rest(turn.share)
            self._changed.notify_all()

    def leave(self, turn: Turn) -> None:
        """Have `turn` take part no more."""
        with self._changed:
            turn.has_left = True
            self._schedule.leave(turn.share)
            self._changed.notify_all()


class Turn:
    """What the runs of one topology take."""

    def __init__(self, turns: Turns, share: Share) -> None:
        """Made by `Turns.join`."""
        self._turns = turns
        self.share = share
        self.has_left = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn, and have it until the block ends, in any way."""
        is_taken = self._turns.begin(self)
        try:
            yield
        finally:
            if is_taken:
                self._turns.end(self)

    def rest(self) -> None:
        """Let nobody wait for this topology until its next run: it has nothing to process for now. From any thread."""
        self._turns.rest(self)

    def leave(self) -> None:
        """Take no turns any more, and have a run that waits begin. From any thread."""
        self._turns.leave(self)
