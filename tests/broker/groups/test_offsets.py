"""Committed offsets, through restarts and transactions."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.groups.support import GroupBroker


def test_offsets_outlive_a_restart(broker: GroupBroker) -> None:
    broker.commit("g", "t", 0, 5)
    broker.commit("g", "t", 0, 7)
    broker.commit("g", "t", 1, 3)
    broker.commit("other", "t", 1, 1)
    broker.restart()
    assert broker.positions("g") == {("t", 0): 7, ("t", 1): 3}
    assert broker.positions("other") == {("t", 1): 1}
    broker.groups.offsets.delete("g", [("t", 0), ("t", 9)])
    broker.restart()
    assert broker.positions("g") == {("t", 1): 3}


def test_offsets_of_a_transaction_count_when_it_is_committed(broker: GroupBroker) -> None:
    broker.commit("g", "t", 0, 1)
    broker.commit_in_transaction(7, "g", "t", 0, 2)
    for _ in range(2):
        assert broker.positions("g") == {("t", 0): 1}
        assert broker.groups.offsets.has_pending("g", "t", 0)
        assert not broker.groups.offsets.has_pending("g", "t", 1)
        broker.restart()
    broker.end_transaction(7, is_commit=True)
    for _ in range(2):
        assert broker.positions("g") == {("t", 0): 2}
        assert not broker.groups.offsets.has_pending("g", "t", 0)
        broker.restart()


def test_offsets_of_an_aborted_transaction_are_dropped(broker: GroupBroker) -> None:
    broker.commit_in_transaction(7, "g", "t", 0, 2)
    broker.end_transaction(7, is_commit=False)
    for _ in range(2):
        assert broker.positions("g") == {}
        assert not broker.groups.offsets.has_pending("g", "t", 0)
        broker.restart()


def test_a_commit_that_came_after_that_of_the_transaction_stands(broker: GroupBroker) -> None:
    broker.commit_in_transaction(7, "g", "t", 0, 2)
    broker.commit("g", "t", 0, 9)
    broker.end_transaction(7, is_commit=True)
    for _ in range(2):
        assert broker.positions("g") == {("t", 0): 9}
        broker.restart()


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "pending", "end", "abort", "delete", "restart"]),
        st.integers(0, 1),  # producer
        st.sampled_from(["g", "h"]),
        st.integers(0, 1),  # partition
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_a_restart_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, str, int]]
) -> None:
    broker = GroupBroker(tmp_path_factory.mktemp("offsets"))
    broker.create_topic("t")

    def view() -> list[object]:
        offsets = broker.groups.offsets
        pending = [offsets.has_pending(group, "t", index) for group in ("g", "h") for index in (0, 1)]
        return [offsets.of_group("g"), offsets.of_group("h"), pending]

    broker.commit("x", "t", 0, 1)  # markers need the topic
    for number, (step, producer_id, group, partition) in enumerate(steps):
        match step:
            case "commit":
                broker.commit(group, "t", partition, number)
            case "pending":
                broker.commit_in_transaction(producer_id, group, "t", partition, number)
            case "end" | "abort":
                broker.end_transaction(producer_id, step == "end")
            case "delete":
                broker.groups.offsets.delete(group, [("t", partition)])
            case _:
                before = view()
                broker.restart()
                assert view() == before
    before = view()
    broker.restart()
    assert view() == before
    broker.close()
