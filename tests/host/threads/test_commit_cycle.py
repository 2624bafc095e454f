"""When a commit is due before its interval ends."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from penstock.host.threads import vocabulary as v
from penstock.host.threads.active_task import ActiveTaskState
from penstock.host.threads.commit_cycle import CommitCycle
from penstock.host.threads.phases import InstancePhase
from penstock.host.threads.settings import Settings
from penstock.host.threads.task_manager import BufferLimits, TaskManager
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from tests.host.threads.test_workers import config_in, layout_in

HUNG, OTHER = TaskId(1, 0), TaskId(1, 1)
MOST = 1_000


def test_uncommitted_bytes_of_a_task_that_hangs_bring_no_commit_forward() -> None:
    settings = {"enable.transactional.statestores": True, "statestore.uncommitted.max.bytes": MOST}
    config = config_in(Path("nowhere"), **settings)
    limits = BufferLimits(1_000, 1_000)
    tasks = TaskManager(config, limits)
    for id in (HUNG, OTHER):
        tasks.add(id, [TopicPartition("words", id.partition)]).state = ActiveTaskState.RUNNING
    layout = layout_in(config)
    cycle = CommitCycle(layout, Settings(30_000, limits), tasks, InstancePhase(), Mock(), Mock(), 0)
    cycle.ran(v.Ran(OTHER, uncommitted_bytes=1))
    assert not cycle.is_due(1)
    cycle.ran(v.Ran(HUNG, uncommitted_bytes=MOST))
    assert cycle.is_due(1)
    tasks.set_aside([HUNG])  # a function hangs in that commit, which is undone; the next one is without the task
    cycle.finish(2)
    cycle.ran(v.Ran(OTHER, uncommitted_bytes=2))
    assert not cycle.is_due(3)
