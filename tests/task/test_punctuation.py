"""Schedules by wall clock, where the clock goes back, and alarms."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.processor.api import PunctuationType
from penstock.task.punctuation import EpochSchedules, LivingSchedules, Schedule, Schedules, TaskAlarm

WALL_CLOCK = PunctuationType.WALL_CLOCK_TIME


def _schedule(interval: int, next_time: int) -> Schedule:
    return Schedule("node", 0, WALL_CLOCK, interval, lambda _: None, next_time)


@given(st.integers(1, 1_000), st.integers(0, 10**7), st.integers(0, 10**7))
def test_a_schedule_waits_no_longer_than_its_interval_though_the_clock_went_back(
    interval: int, next_time: int, now: int
) -> None:
    schedules = LivingSchedules()
    schedules.add(_schedule(interval, next_time), initializing=True)
    schedules.go_back(now)
    due = schedules.next_time(WALL_CLOCK)
    assert due is not None
    assert due <= now + interval
    assert (next_time - due) % interval == 0
    assert due == next_time or due > now


def test_a_schedule_with_a_start_time_waits_for_it_though_the_clock_went_back() -> None:
    schedule = _schedule(10, next_time=1_000)
    schedule.first_time = 1_000
    schedules = LivingSchedules()
    schedules.add(schedule, initializing=True)
    schedules.go_back(100)
    assert schedules.take_due(WALL_CLOCK, 999) is None
    assert schedules.take_due(WALL_CLOCK, 1_000) is schedule


def test_what_is_due_first_is_still_first_after_the_clock_went_back() -> None:
    far, near = _schedule(10, next_time=2_001), _schedule(100, next_time=1_050)
    schedules = LivingSchedules()
    for each in (far, near):
        schedules.add(each, initializing=True)
    schedules.go_back(1_000)
    assert [schedules.take_due(WALL_CLOCK, 5_000) for _ in range(2)] == [far, near]


def _alarm(schedules: Schedules) -> TaskAlarm:
    alarm = TaskAlarm("node", 0, lambda _: None, schedules)
    schedules.add(alarm, initializing=True)
    return alarm


def test_an_alarm_fires_once_at_its_time_and_moves_among_other_schedules() -> None:
    schedules = LivingSchedules()
    alarm = _alarm(schedules)
    assert schedules.next_time(WALL_CLOCK) is None
    other = _schedule(10, next_time=50)
    schedules.add(other, initializing=True)
    alarm.ring_at(70)
    assert schedules.next_time(WALL_CLOCK) == 50
    alarm.ring_at(40)
    assert schedules.next_time(WALL_CLOCK) == 40
    assert schedules.take_due(WALL_CLOCK, 39) is None
    assert schedules.take_due(WALL_CLOCK, 60) is alarm
    alarm.ring_at(None)  # as its punctuator does
    alarm.advance(60)
    schedules.put_back(alarm)
    assert schedules.take_due(WALL_CLOCK, 60) is other
    assert schedules.take_due(WALL_CLOCK, 10**9) is None


def test_an_alarm_whose_punctuator_failed_fires_again_a_second_later() -> None:
    schedules = LivingSchedules()
    alarm = _alarm(schedules)
    alarm.ring_at(40)
    assert schedules.take_due(WALL_CLOCK, 60) is alarm
    alarm.advance(60)
    schedules.put_back(alarm)
    assert schedules.next_time(WALL_CLOCK) == 1_060


def test_an_alarm_that_is_set_fires_when_the_clock_went_back() -> None:
    schedules = LivingSchedules()
    alarm = _alarm(schedules)
    schedules.go_back(100)
    assert schedules.next_time(WALL_CLOCK) is None
    alarm.ring_at(5_000)
    schedules.go_back(90)
    assert schedules.take_due(WALL_CLOCK, 90) is alarm


def test_a_commit_has_the_time_of_an_alarm_that_is_set() -> None:
    schedules = EpochSchedules(())
    alarm = _alarm(schedules)
    assert schedules.states() == ()
    alarm.ring_at(70)
    (state,) = states = schedules.states()
    assert state.next_time == 70
    following = EpochSchedules(states)
    assert _alarm(following).committed_time() is None  # until its operator sets it
    assert following.next_time(WALL_CLOCK) is None
