"""Calls follow the tasks of an instance."""

from __future__ import annotations

from unittest.mock import Mock, call

import pytest

from penstock import Calls, Consumed, Serdes, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.errors import TaskMigratedError
from penstock.host.calls.runner import CallRunner
from penstock.host.deployment.internal_topics import internal_topics
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.deployment.lost_topics import used_topics
from penstock.host.threads import vocabulary as v
from penstock.host.threads.instance_calls import InstanceCalls
from penstock.host.threads.new_calls import NewCalls
from penstock.host.threads.vocabulary import GLOBAL_TASK
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from tests.host.calls.support import entries

TASK = TaskId(0, 2)
ANSWERS = "shop-risk-answers"


async def risk(value: str) -> str:
    return value


def layout() -> Layout:
    builder = StreamsBuilder()
    stream = builder.stream("orders", Consumed.with_(Serdes.string(), Serdes.string()))
    stream.map_values(risk, named="risk", calls=Calls()).to("risks")
    config = StreamsConfig({"application.id": "shop", "bootstrap.servers": "localhost:9092"})
    return layout_of(builder.build().build("shop"), config, {"orders": 3, "risks": 1})


def calls() -> tuple[InstanceCalls, Mock]:
    runner = Mock(spec=CallRunner)
    return InstanceCalls(layout(), runner), runner


def test_a_task_reads_the_answers_partition_of_its_number() -> None:
    found = layout()
    assert found.answers(TASK) == {"risk": TopicPartition(ANSWERS, 2)}
    assert found.read_by(TASK) == (TopicPartition("orders", 2), TopicPartition(ANSWERS, 2))
    assert found.readers[TopicPartition(ANSWERS, 1)] == TaskId(0, 1)
    assert found.groups[TASK] == (TopicPartition("orders", 2),)


def test_a_task_that_is_opened_again_waits_for_its_answers() -> None:
    made, runner = calls()
    made.await_written(GLOBAL_TASK)
    assert runner.await_written.mock_calls == []
    made.await_written(TASK)
    ((node, partition, seconds),) = (each.args for each in runner.await_written.mock_calls)
    assert (node, partition) == ("risk", 2)
    assert 0 < seconds < 10


def test_the_answers_topic_has_a_partition_for_each_task() -> None:
    (topic,) = (each for each in internal_topics(layout()) if each.name == ANSWERS)
    assert topic.partitions == 3
    assert topic.config["cleanup.policy"] == "delete"
    assert topic.config["retention.ms"] == "-1"


def test_the_answers_topic_must_exist_while_there_are_offsets() -> None:
    found = layout()
    assert ANSWERS in used_topics(found.topology, found.spec(TASK))


def test_calls_of_a_task_begin_with_its_commits_and_end_when_it_is_closed() -> None:
    found, runner = calls()
    new = entries(("a", "x"))
    found.answered(v.Started(TASK, None))
    found.answered(v.CommitApplied(TASK, None, NewCalls({"risk": new}, 1)))
    found.closed(TASK)
    found.closed(GLOBAL_TASK)
    assert runner.mock_calls == [call.add("risk", 2, new), call.drop("risk", 2)]


def test_no_calls_begin_while_the_application_is_paused_or_cut_off() -> None:
    found, runner = calls()
    for event in (v.PauseRequested(), v.SessionTimedOut(), v.ResumeRequested()):
        found.follow(event)
    assert runner.mock_calls == [call.pause(), call.pause()]
    found.follow(v.Reconnected())
    assert runner.mock_calls[2:] == [call.resume()]
    found.follow(v.TimePassed())
    found.close()
    assert runner.mock_calls[3:] == [call.close()]


LOST = TaskMigratedError("This instance has lost its tasks.")


@pytest.mark.parametrize("lost", [v.MembershipLost(LOST), v.MembershipRefused(LOST)])
def test_no_calls_begin_between_the_loss_of_a_membership_and_the_next_assignment(lost: v.GroupEvent) -> None:
    found, runner = calls()
    for event in (v.SessionTimedOut(), lost):
        found.follow(event)
    assert runner.resume.mock_calls == []
    assert runner.pause.called
    found.follow(v.Assigned(frozenset(), frozenset()))
    assert runner.resume.mock_calls == [call()]


def test_calls_follow_the_group_before_the_core_does() -> None:
    found, runner = calls()
    seen: list[bool] = []
    found.following(lambda event: seen.append(runner.pause.called))(v.MembershipLost(LOST))
    assert seen == [True]
