"""The turns of topologies that share one process: in proportion to their weights, and nobody waits for long."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.host.turns import CREDIT_NS, LONGEST_NS, MOST_WAIT_NS, PATIENCE_NS, FairSchedule, Share, Turns
from tests.support.waiting import until

MS = 1_000_000


class Play:
    """Topologies that always have something to process, which ask for their next run a while behind the last one."""

    def __init__(self, weights: Mapping[str, int], run_ms: Mapping[str, int], pause_ms: int = 0) -> None:
        self.schedule, self.now = FairSchedule(), 0
        self.shares = {name: Share(weight) for name, weight in weights.items()}
        self.had: Counter[str] = Counter()
        self.order: list[str] = []
        self._run_ns = {name: ms * MS for name, ms in run_ms.items()}
        self._pause_ns = pause_ms * MS
        self._asks_at = dict.fromkeys(weights, 0)

    def runs(self, number: int) -> None:
        """Play so many runs, one after the other."""
        for _ in range(number):
            self._run()

    def _run(self) -> None:
        while True:
            for name, at in self._asks_at.items():
                if at <= self.now and not self.shares[name].is_waiting:
                    self.schedule.ask(self.shares[name], self.now)
            waits = {
                name: self.schedule.wait_ns(share, self.now) for name, share in self.shares.items() if share.is_waiting
            }
            ready = [name for name, wait in waits.items() if wait == 0]
            if ready:
                break
            comes = [at - self.now for name, at in self._asks_at.items() if name not in waits]
            self.now += min([*waits.values(), *comes])
        [name] = ready
        share = self.shares[name]
        self.schedule.begin(share, self.now)
        self.now += self._run_ns[name]
        self.schedule.end(share, self.now)
        self.had[name] += self._run_ns[name]
        self.order.append(name)
        self._asks_at[name] = self.now + self._pause_ns


@pytest.mark.parametrize("pause_ms", [0, 1])
@pytest.mark.parametrize("run_ms", [(50, 50), (50, 7), (3, 50)])
def test_time_is_shared_by_weight(run_ms: tuple[int, int], pause_ms: int) -> None:
    play = Play({"heavy": 3, "light": 1}, {"heavy": run_ms[0], "light": run_ms[1]})
    play.runs(2_000)
    assert play.had["heavy"] / play.had["light"] == pytest.approx(3, rel=0.1)


def test_the_turn_is_kept_for_a_topology_whose_next_run_follows_in_a_moment() -> None:
    # Its waits count as its own time, of 5 + 50 ms.
    play = Play({"heavy": 3, "light": 1}, {"heavy": 50, "light": 50}, pause_ms=5)
    play.runs(400)
    assert play.had["heavy"] / play.had["light"] == pytest.approx(3 * 50 / 55, rel=0.1)


def test_topologies_without_weights_of_their_own_alternate() -> None:
    play = Play({"a": 1, "b": 1, "c": 1}, {"a": 10, "b": 10, "c": 10})
    play.runs(30)
    assert [sorted(play.order[at : at + 3]) for at in range(0, 30, 3)] == [["a", "b", "c"]] * 10


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=2, max_size=5))
def test_each_has_its_share_and_its_turn_within_a_bound(topologies: Sequence[tuple[int, int]]) -> None:
    weights = {str(number): weight for number, (weight, _) in enumerate(topologies)}
    play = Play(weights, {str(number): run_ms for number, (_, run_ms) in enumerate(topologies)})
    play.runs(500)
    longest = max(run_ms for _, run_ms in topologies) * MS
    used = [play.had[name] / weight for name, weight in weights.items()]
    assert max(used) - min(used) <= 2 * longest


def started(*weights: int) -> tuple[FairSchedule, list[Share]]:
    """Return shares that have each had a run of 10 ms for their weight, one after the other."""
    schedule, shares = FairSchedule(), [Share(weight) for weight in weights]
    for share in shares:
        schedule.ask(share, 0)
    for share in shares:
        schedule.begin(share, 0)
        schedule.end(share, 10 * MS * share.weight)
    return schedule, shares


def test_nobody_waits_for_a_topology_that_rests_or_does_not_come_back() -> None:
    schedule, [gone, light] = started(1000, 1)
    schedule.begin(light, 0)
    schedule.end(light, 20 * MS)
    schedule.ask(light, 20 * MS)
    assert 0 < schedule.wait_ns(light, 20 * MS) <= gone.away_since + PATIENCE_NS
    schedule.rest(gone)
    assert schedule.wait_ns(light, 20 * MS) == 0
    schedule, [gone, light] = started(1000, 1)
    schedule.begin(light, 0)
    schedule.end(light, 20 * MS)
    schedule.ask(light, 20 * MS)
    assert schedule.wait_ns(light, gone.away_since + PATIENCE_NS) == 0


def test_a_topology_is_not_charged_for_a_turn_that_was_kept_while_nobody_waited() -> None:
    schedule, [heavy, light] = started(1000, 1)
    schedule.begin(light, 0)
    schedule.end(light, 20 * MS)
    schedule.ask(light, 20 * MS)
    assert schedule.wait_ns(light, 20 * MS) > 0
    schedule.leave(light)
    used, later = heavy.used, 1_000_000 * MS
    schedule.ask(heavy, later)
    assert schedule.wait_ns(heavy, later) == 0
    schedule.begin(heavy, later)
    assert heavy.used == used


def test_a_topology_is_charged_for_no_longer_than_the_turn_is_kept_for_it() -> None:
    schedule, [heavy, light] = started(1000, 1)
    schedule.begin(light, 0)
    schedule.end(light, 20 * MS)
    schedule.ask(light, 20 * MS)
    assert schedule.wait_ns(light, 20 * MS) > 0
    used = heavy.used
    schedule.begin(light, 1_000_000 * MS)  # its thread got no time before
    assert heavy.used == used + PATIENCE_NS / heavy.weight


def test_a_rest_is_no_claim_to_more_than_a_moment() -> None:
    schedule, [idle, busy] = started(1, 1)
    schedule.rest(idle)
    now = 10 * MS
    for _ in range(100):
        schedule.ask(busy, now)
        assert schedule.wait_ns(busy, now) == 0
        schedule.begin(busy, now)
        now += 50 * MS
        schedule.end(busy, now)
    schedule.ask(idle, now)
    schedule.ask(busy, now)
    assert schedule.wait_ns(idle, now) == 0
    schedule.begin(idle, now)
    now += CREDIT_NS + 51 * MS
    schedule.end(idle, now)
    schedule.ask(idle, now)
    assert schedule.wait_ns(busy, now) == 0


def test_a_run_that_does_not_end_keeps_nobody_from_running() -> None:
    schedule, [hung, other] = started(1, 1)
    schedule.begin(hung, 0)
    schedule.ask(other, 0)
    assert schedule.wait_ns(other, LONGEST_NS - 1) == 1
    assert schedule.wait_ns(other, LONGEST_NS) == 0
    schedule.begin(other, LONGEST_NS)
    schedule.end(hung, 2 * LONGEST_NS)
    third = Share(1)
    schedule.ask(third, LONGEST_NS)
    assert schedule.wait_ns(third, LONGEST_NS) > 0, "the other one has the turn"


def test_a_run_that_has_waited_for_long_goes_first_whatever_the_weights() -> None:
    schedule, [heavy, light] = started(10**9, 1)
    schedule.begin(light, 0)
    schedule.end(light, 1_000 * MS)
    schedule.ask(light, 0)
    schedule.ask(heavy, MS)
    assert schedule.wait_ns(light, MOST_WAIT_NS - 1) > 0
    assert schedule.wait_ns(light, MOST_WAIT_NS) == 0


# ---------------------------------------- threads


class Runner:
    """A thread that takes one turn, and has it until it is let go."""

    def __init__(self, turns: Turns, weight: int | None = 1) -> None:
        self.turn = turns.join(weight)
        self.has_begun, self.let_go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with self.turn.taken():
            self.has_begun.set()
            assert self.let_go.wait(60)

    def end(self) -> None:
        self.let_go.set()
        self.thread.join(60)
        assert not self.thread.is_alive()


def asked(runner: Runner) -> None:
    assert until(lambda: runner.turn.share.is_waiting)


def test_one_runs_at_a_time_and_the_end_of_a_run_wakes_the_next() -> None:
    turns = Turns(lambda: 0)
    first = Runner(turns)
    assert first.has_begun.wait(60)
    second = Runner(turns)
    asked(second)
    assert not second.has_begun.is_set()
    first.end()
    first.turn.rest()
    assert second.has_begun.wait(60)
    second.end()


def test_the_turn_is_released_where_a_run_raises() -> None:
    turns = Turns(lambda: 0)
    turn = turns.join(1)
    with pytest.raises(ValueError, match="of the user"), turn.taken():
        raise ValueError("of the user")
    turn.rest()
    other = Runner(turns)
    assert other.has_begun.wait(60)
    other.end()


def test_a_topology_that_leaves_waits_for_nobody() -> None:
    turns = Turns(lambda: 0)
    first = Runner(turns)
    assert first.has_begun.wait(60)
    second = Runner(turns)
    asked(second)
    second.turn.leave()
    assert second.has_begun.wait(60)
    second.end()
    first.end()


def test_there_are_no_turns_while_no_topology_has_been_given_a_weight() -> None:
    turns = Turns(lambda: 0)
    first, second = Runner(turns, None), Runner(turns, None)
    assert first.has_begun.wait(60)
    assert second.has_begun.wait(60)
    first.end()
    second.end()
