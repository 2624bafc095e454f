"""What the core learns of its output, and what becomes of a transaction that has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from penstock.client.api import CommitRefusedError, GroupIdentity, OffsetAndMetadata, OnRefused
from penstock.client.confluent.refusals import fail_on_refused
from penstock.errors import KafkaError, ProducerFencedError, TaskMigratedError
from penstock.host.threads import vocabulary as v
from penstock.host.threads.output import ExactlyOnceOutput
from penstock.plan.subtopology import TaskId
from penstock.record import PartitionBatch, TopicPartition
from penstock_broker.wire.error_codes import ErrorCode
from tests.host.threads.support import AloneMembership

SEND = v.Send((), TaskId(0, 0))
COMMIT = v.CommitTransaction({TopicPartition("in", 0): OffsetAndMetadata(1)})


class _Producer:
    """Raises what it is to raise, once (implements TransactionalProducer)."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.done: list[str] = []

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused) -> None:
        self._do("send")

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity
    ) -> dict[TopicPartition, int]:
        self._do("commit")
        return {}

    def lags(self) -> bool:
        return False

    def abort(self) -> None:
        self._do("abort")

    def close(self) -> None:
        pass

    def _do(self, what: str) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.done.append(what)


MEMBER = GroupIdentity("app", 1, "m1")


class _Member(AloneMembership):
    def __init__(self, has_twin: bool = False) -> None:
        self._has_twin = has_twin
        self.refused: list[tuple[int, GroupIdentity]] = []

    def identity(self) -> GroupIdentity:
        return MEMBER

    def commit_refused(self, code: int, member: GroupIdentity) -> None:
        self.refused.append((code, member))

    def fenced(self) -> bool:
        return self._has_twin


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (ProducerFencedError("fenced"), v.TransactionLost),
        (TaskMigratedError("counted out"), v.TransactionLost),
        (KafkaError("refused"), v.Failed),
    ],
)
def test_offsets_are_not_committed_without_the_records_that_were_lost(error: Exception, event: type[v.Event]) -> None:
    producer = _Producer()
    output = ExactlyOnceOutput(producer, _Member(), lambda task: fail_on_refused)
    producer.error = error
    assert isinstance(output.do(SEND), event)
    assert output.do(SEND) is None
    assert output.do(COMMIT) is None
    assert producer.done == []
    assert output.do(v.Abort()) is None
    output.do(SEND)
    assert output.do(COMMIT) == v.TransactionCommitted({})
    assert producer.done == ["abort", "send", "commit"]


def test_the_membership_hears_of_a_commit_that_the_group_refuses() -> None:
    producer, member = _Producer(), _Member()
    output = ExactlyOnceOutput(producer, member, lambda task: fail_on_refused)
    output.do(SEND)
    producer.error = CommitRefusedError("counted out", ErrorCode.unknown_member_id)
    assert isinstance(output.do(COMMIT), v.TransactionLost)
    assert member.refused == [(ErrorCode.unknown_member_id, MEMBER)]


@pytest.mark.parametrize("has_twin", [False, True])
def test_a_producer_that_is_fenced_is_one_of_two_only_where_the_group_has_another_one(has_twin: bool) -> None:
    producer = _Producer()
    output = ExactlyOnceOutput(producer, _Member(has_twin), lambda task: fail_on_refused)
    producer.error = error = ProducerFencedError("fenced")
    assert output.do(SEND) == v.TransactionLost(error, is_fenced=has_twin)


def test_an_abort_that_fails_does_not_keep_the_next_transaction_from_being_committed() -> None:
    producer = _Producer()
    output = ExactlyOnceOutput(producer, _Member(), lambda task: fail_on_refused)
    producer.error = KafkaError("refused")
    assert isinstance(output.do(v.Abort()), v.Failed)
    assert output.do(COMMIT) == v.TransactionCommitted({})
