"""The turns of topologies that share one process: in proportion to their weights, and nobody waits for long."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.host.supervision.turns import (
    CREDIT_NS,
    LONGEST_NS,
    MOST_WAIT_NS,
    PATIENCE_NS,
    FairSchedule,
    Runner,
    ScheduleShare,
    TopologyTurns,
    Turns,
)
from tests.support.waiting import until

MS = 1_000_000


class Play:
    """Topologies that always have something to process, whose runners ask for their next run a while behind the last
    one."""

    def __init__(
        self,
        weights: Mapping[str, int],
        run_ms: Mapping[str, int],
        pause_ms: int = 0,
        places: int = 1,
        runners: int | Mapping[str, int] = 1,
    ) -> None:
        self.schedule, self.now = FairSchedule(places), 0
        self.had: Counter[str] = Counter()
        self.order: list[str] = []
        self.most_at_a_time = 0
        self.longest_wait = 0
        self._run_ns = {name: ms * MS for name, ms in run_ms.items()}
        self._pause_ns = pause_ms * MS
        self._asks: list[tuple[int, str, Runner]] = []
        self._running: list[tuple[int, str, Runner]] = []
        self._waiting: list[tuple[str, Runner]] = []
        for name, weight in weights.items():
            share = ScheduleShare(weight)
            for _ in range(runners if isinstance(runners, int) else runners[name]):
                self._asks.append((0, name, Runner(share)))

    def runs(self, number: int) -> None:
        """Play so many runs."""
        while len(self.order) < number:
            self._end()
            self._ask()
            wait = self._begin()
            times = [at - self.now for at, _, _ in [*self._asks, *self._running]]
            self.now += min([wait, *times])

    def _end(self) -> None:
        for end in [each for each in self._running if each[0] <= self.now]:
            self._running.remove(end)
            _, name, runner = end
            self.schedule.end(runner, self.now)
            self.had[name] += self._run_ns[name]
            self.order.append(name)
            self._asks.append((self.now + self._pause_ns, name, runner))

    def _ask(self) -> None:
        for ask in [each for each in self._asks if each[0] <= self.now]:
            self._asks.remove(ask)
            _, name, runner = ask
            self.schedule.ask(runner, self.now)
            self._waiting.append((name, runner))

    def _begin(self) -> int:
        """Let those run that may; return after how long (ns) to ask again."""
        waits = [0]
        while self._waiting and 0 in waits:
            waits = []
            for name, runner in list(self._waiting):
                waits.append(self.schedule.wait_ns(runner, self.now))
                if waits[-1] == 0:
                    self._waiting.remove((name, runner))
                    self.schedule.begin(runner, self.now)
                    self.longest_wait = max(self.longest_wait, self.now - runner.asked_at)
                    self._running.append((self.now + self._run_ns[name], name, runner))
                    self.most_at_a_time = max(self.most_at_a_time, len(self._running))
        return min((wait for wait in waits if wait), default=LONGEST_NS)


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


PLACES = st.integers(1, 4)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 50)), min_size=2, max_size=4), PLACES, st.integers(0, 2))
def test_worker_processes_share_the_cores_by_weight(
    topologies: Sequence[tuple[int, int]], cores: int, pause_ms: int
) -> None:
    # Each topology could use all cores, so nothing but the weights limits it.
    weights = {str(number): weight for number, (weight, _) in enumerate(topologies)}
    run_ms = {str(number): run_ms for number, (_, run_ms) in enumerate(topologies)}
    play = Play(weights, run_ms, places=cores, runners=cores)
    play.runs(300)
    longest = max(run_ms.values()) * MS
    used = [play.had[name] / weight for name, weight in weights.items()]
    assert max(used) - min(used) <= 2 * cores * longest
    assert play.most_at_a_time == cores
    assert play.longest_wait <= MOST_WAIT_NS + len(weights) * cores * longest


def test_nobody_waits_if_there_is_a_core_for_each_worker_process() -> None:
    play = Play({"heavy": 100, "light": 1}, {"heavy": 50, "light": 50}, pause_ms=3, places=4, runners=2)
    play.runs(200)
    assert play.longest_wait == 0
    assert play.had["heavy"] == play.had["light"]


def test_what_a_topology_with_few_worker_processes_cannot_use_is_for_the_others() -> None:
    play = Play({"heavy": 100, "light": 1}, {"heavy": 50, "light": 50}, places=2, runners={"heavy": 1, "light": 3})
    play.runs(200)
    assert play.most_at_a_time == 2
    assert play.had["heavy"] == pytest.approx(play.had["light"], rel=0.05)


def test_a_topology_has_no_claim_to_cores_that_it_could_not_use() -> None:
    schedule, now = FairSchedule(2), 0
    share = ScheduleShare(1)
    one, later = Runner(share), Runner(share)
    busy = Runner(ScheduleShare(1))
    for _ in range(100):  # it has one worker process with records, as has the other topology, which takes longer
        for runner, ms in ((one, 10), (busy, 50)):
            schedule.ask(runner, now)
            assert schedule.wait_ns(runner, now) == 0
            schedule.begin(runner, now)
            schedule.end(runner, now + ms * MS)
        now += 50 * MS
    assert busy.share.used - share.used > 10 * CREDIT_NS
    schedule.ask(later, now)
    assert busy.share.used - share.used <= 2 * CREDIT_NS


def started(*weights: int) -> tuple[FairSchedule, list[Runner]]:
    """Return runners of topologies that have each had a run of 10 ms for their weight, one after the other."""
    schedule, runners = FairSchedule(), [Runner(ScheduleShare(weight)) for weight in weights]
    for runner in runners:
        schedule.ask(runner, 0)
    for runner in runners:
        schedule.begin(runner, 0)
        schedule.end(runner, 10 * MS * runner.share.weight)
    return schedule, runners


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
    used, later = heavy.share.used, 1_000_000 * MS
    schedule.ask(heavy, later)
    assert schedule.wait_ns(heavy, later) == 0
    schedule.begin(heavy, later)
    assert heavy.share.used == used


def test_a_topology_is_charged_for_no_longer_than_the_turn_is_kept_for_it() -> None:
    schedule, [heavy, light] = started(1000, 1)
    schedule.begin(light, 0)
    schedule.end(light, 20 * MS)
    schedule.ask(light, 20 * MS)
    assert schedule.wait_ns(light, 20 * MS) > 0
    used = heavy.share.used
    schedule.begin(light, 1_000_000 * MS)  # its thread got no time before
    assert heavy.share.used == used + PATIENCE_NS / heavy.share.weight


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
    third = Runner(ScheduleShare(1))
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


class Running:
    """A thread that takes one turn, and has it until it is let go."""

    def __init__(self, turns: TopologyTurns) -> None:
        self.turns, self.turn = turns, turns.of_runner()
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


def asked(running: Running) -> None:
    assert until(lambda: running.turn.runner.is_waiting)


def test_one_runs_at_a_time_and_the_end_of_a_run_wakes_the_next() -> None:
    turns = Turns(lambda: 0)
    first = Running(turns.join(1))
    assert first.has_begun.wait(60)
    second = Running(turns.join(1))
    asked(second)
    assert not second.has_begun.is_set()
    first.end()
    first.turns.rest()
    assert second.has_begun.wait(60)
    second.end()


def test_as_many_run_at_a_time_as_there_are_places() -> None:
    turns = Turns(lambda: 0, places=2)
    of_one = turns.join(1)
    first, second = Running(of_one), Running(turns.join(1))
    assert first.has_begun.wait(60)
    assert second.has_begun.wait(60)
    third = Running(of_one)
    asked(third)
    assert not third.has_begun.is_set()
    second.end()
    second.turns.rest()
    assert third.has_begun.wait(60)
    third.end()
    first.end()


def test_the_turn_is_released_where_a_run_raises() -> None:
    turns = Turns(lambda: 0)
    of_one = turns.join(1)
    with pytest.raises(ValueError, match="of the user"), of_one.of_runner().taken():
        raise ValueError("of the user")
    of_one.rest()
    other = Running(turns.join(1))
    assert other.has_begun.wait(60)
    other.end()


def test_a_topology_that_leaves_waits_for_nobody() -> None:
    turns = Turns(lambda: 0)
    first = Running(turns.join(1))
    assert first.has_begun.wait(60)
    second = Running(turns.join(1))
    asked(second)
    second.turns.leave()
    assert second.has_begun.wait(60)
    second.end()
    first.end()


def test_the_turn_of_a_worker_process_that_has_died_is_free() -> None:
    turns = Turns(lambda: 0)
    of_one = turns.join(1)
    dead = of_one.of_runner()
    dead.begin()
    other = Running(turns.join(1))
    asked(other)
    dead.leave()
    assert other.has_begun.wait(60)
    other.end()
    dead.begin()  # by the thread that does not know yet: nobody waits for it
    dead.end()
    in_its_place = Running(of_one)
    assert in_its_place.has_begun.wait(60)
    in_its_place.end()


def test_time_without_a_turn_counts_and_nobody_waits_for_it() -> None:
    turns = Turns(lambda: 0)
    committing, other = turns.join(2), turns.join(1)
    runner = committing.of_runner()
    with runner.taken():
        committing.count(10 * MS)
    assert runner.runner.share.used == 5 * MS
    with other.of_runner().taken():
        assert turns.waiting() == 0


def test_there_are_no_turns_while_no_topology_has_been_given_a_weight() -> None:
    turns = Turns(lambda: 0)
    first, second = Running(turns.join(None)), Running(turns.join(None))
    assert first.has_begun.wait(60)
    assert second.has_begun.wait(60)
    first.end()
    second.end()
