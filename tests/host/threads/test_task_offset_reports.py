"""The task offsets of heartbeats: when they are sent, and which."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.errors import BrokerNotFoundError
from penstock.host.threads.member_messages import StreamsTasks
from penstock.host.threads.task_offset_reports import TaskOffsetReport, TaskOffsetReports
from penstock.plan.subtopology import TaskId

ACTIVE, STANDBY, WARM_UP, CLOSED = (TaskId(0, number) for number in range(4))
OWNED = StreamsTasks(frozenset({ACTIVE}), frozenset({STANDBY}))
INTERVAL_MS = 60_000
LAG = 10


class State:
    """Positions that tests change (implements ChangelogPositions)."""

    def __init__(self) -> None:
        self.now: dict[TaskId, int] = {ACTIVE: 1, STANDBY: 5, CLOSED: 7}
        self.known_ends: dict[TaskId, int] | None = {ACTIVE: 100, STANDBY: 50, CLOSED: 100}
        self.asked = 0

    def positions(self) -> Mapping[TaskId, int]:
        return dict(self.now)

    def ends(self) -> Mapping[TaskId, int]:
        self.asked += 1
        if self.known_ends is None:
            raise BrokerNotFoundError("no broker answers")
        return dict(self.known_ends)


class Heartbeats:
    """Reports, and the coordinator that answers them."""

    def __init__(self, state: State | None) -> None:
        self.reports = TaskOffsetReports(state)
        self.now = 0
        self.interval_ms = INTERVAL_MS

    def answered(self, report: TaskOffsetReport) -> TaskOffsetReport:
        self.reports.answered(report, self.now, self.interval_ms, LAG)
        return report

    def join(self) -> TaskOffsetReport:
        return self.answered(self.reports.of_join())

    def lost(self, owned: StreamsTasks = OWNED, after_ms: int = 5_000) -> TaskOffsetReport:
        """Return the report of a heartbeat without an answer."""
        self.now += after_ms
        return self.reports.of_heartbeat(owned, self.now)

    def sent(self, owned: StreamsTasks = OWNED, after_ms: int = 5_000) -> TaskOffsetReport:
        return self.answered(self.lost(owned, after_ms))


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def heartbeats(state: State) -> Heartbeats:
    """Heartbeats of a member that has reported its tasks."""
    heartbeats = Heartbeats(state)
    heartbeats.join()
    heartbeats.sent()
    return heartbeats


def test_a_join_reports_all_offsets_and_no_ends(state: State) -> None:
    report = Heartbeats(state).join()
    assert (report.offsets, report.ends) == ({ACTIVE: 1, STANDBY: 5, CLOSED: 7}, {})
    assert state.asked == 0


def test_an_assignment_is_acknowledged_with_the_offsets_of_tasks_that_do_not_run(state: State) -> None:
    heartbeats = Heartbeats(state)
    heartbeats.join()
    report = heartbeats.sent()
    assert (report.offsets, report.ends) == ({STANDBY: 5, CLOSED: 7}, {STANDBY: 50})


def test_changed_offsets_wait_for_the_interval(heartbeats: Heartbeats, state: State) -> None:
    state.now[STANDBY] = 6
    assert heartbeats.sent() == TaskOffsetReport(OWNED)
    assert heartbeats.sent(after_ms=INTERVAL_MS) == TaskOffsetReport(OWNED, {STANDBY: 6, CLOSED: 7})
    assert state.asked == 2


def test_a_broker_without_an_interval_gets_offsets_with_assignments_only(state: State) -> None:
    heartbeats = Heartbeats(state)
    heartbeats.interval_ms = 0
    heartbeats.join()
    heartbeats.sent()
    state.now[STANDBY] = 6
    assert heartbeats.sent(after_ms=INTERVAL_MS) == TaskOffsetReport(OWNED)
    assert state.asked == 1
    fewer = StreamsTasks(frozenset(), OWNED.standby)
    assert heartbeats.sent(fewer).offsets == {ACTIVE: 1, STANDBY: 6, CLOSED: 7}


def test_unchanged_offsets_are_not_sent_again(heartbeats: Heartbeats, state: State) -> None:
    assert heartbeats.sent(after_ms=INTERVAL_MS) == TaskOffsetReport(OWNED)
    state.known_ends = {STANDBY: 60}
    assert heartbeats.sent() == TaskOffsetReport(OWNED, None, {STANDBY: 60})


def test_a_report_without_an_answer_is_sent_again(heartbeats: Heartbeats, state: State) -> None:
    state.now[STANDBY] = 6
    expected = TaskOffsetReport(OWNED, {STANDBY: 6, CLOSED: 7})
    assert heartbeats.lost(after_ms=INTERVAL_MS) == expected
    assert heartbeats.sent() == expected
    assert heartbeats.sent() == TaskOffsetReport(OWNED)


def test_a_warm_up_that_has_caught_up_is_reported_at_once(heartbeats: Heartbeats, state: State) -> None:
    owned = StreamsTasks(OWNED.active, OWNED.standby, frozenset({WARM_UP}))
    state.now[WARM_UP], state.known_ends = 0, {STANDBY: 50, WARM_UP: 100}
    heartbeats.sent(owned)
    state.now[WARM_UP] = 100 - LAG - 1
    assert heartbeats.sent(owned) == TaskOffsetReport(owned)
    state.now[WARM_UP] += 1
    assert heartbeats.sent(owned).offsets == {STANDBY: 5, WARM_UP: 90, CLOSED: 7}
    state.known_ends = None
    state.now[WARM_UP] += 1
    assert heartbeats.sent(owned) == TaskOffsetReport(owned)


def test_a_join_reports_all_offsets_again(heartbeats: Heartbeats) -> None:
    assert heartbeats.join().offsets == {ACTIVE: 1, STANDBY: 5, CLOSED: 7}


def test_ends_that_brokers_do_not_answer_are_left_out(state: State, caplog: pytest.LogCaptureFixture) -> None:
    heartbeats = Heartbeats(state)
    heartbeats.join()
    state.known_ends = None
    report = heartbeats.sent()
    assert (report.offsets, report.ends) == ({STANDBY: 5, CLOSED: 7}, None)
    assert "no broker answers" in caplog.text


def test_a_member_without_known_positions_reports_empty_offsets() -> None:
    heartbeats = Heartbeats(None)
    assert heartbeats.join().encode() == {"task_offsets": [], "task_end_offsets": []}
    assert heartbeats.sent().encode() == {"task_offsets": None, "task_end_offsets": None}


def test_offsets_are_encoded_by_task(heartbeats: Heartbeats, state: State) -> None:
    state.now = {CLOSED: 3, STANDBY: 9}
    assert heartbeats.sent(after_ms=INTERVAL_MS).encode() == {
        "task_offsets": [
            {"subtopology_id": "0", "partition": 1, "offset": 9},
            {"subtopology_id": "0", "partition": 3, "offset": 3},
        ],
        "task_end_offsets": None,
    }
