"""How long standby tasks wait for brokers."""

from __future__ import annotations

import logging
from typing import Any
from unittest.mock import Mock

import pytest

from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.errors import AuthorizationError, BrokerNotFoundError, KafkaError, OffsetOutOfRangeError
from penstock.host.deployment.layout import layout_of
from penstock.host.threads.standbys import Standbys
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import built_topology
from penstock.state.memory import MemoryBase

LIMIT_MS = 1_000


class Following:
    """A standby task whose consumer fails as a test asks."""

    def __init__(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").group_by_key().count(Materialized.as_("counts"))
        config = StreamsConfig({"application.id": "app", "task.timeout.ms": LIMIT_MS}, environment={})
        layout = layout_of(built_topology(builder.build(), "app"), config, {"in": 1})
        [partition] = layout.changelogs(TaskId(0, 0)).values()
        admin: Any = Mock()
        admin.topic_ids.return_value = {}
        admin.beginning_offsets.return_value = admin.end_offsets.return_value = {partition: 0}
        self.now = 0
        self.error: KafkaError | None = None
        self.standbys = Standbys(layout, admin, self._consumer, lambda _: MemoryBase(), elapsed_ms=lambda: self.now)
        self.standbys.add(TaskId(0, 0))

    def _consumer(self) -> Any:
        def poll(timeout_ms: int, most: int) -> list[Any]:
            if self.error is not None:
                raise self.error
            return []

        consumer = Mock(poll=poll)
        consumer.reached_ends.return_value = {}
        return consumer

    def advance(self, passed_ms: int, error: KafkaError | None) -> None:
        self.now, self.error = self.now + passed_ms, error
        self.standbys.advance()


def test_standby_tasks_wait_for_brokers_as_long_as_tasks_do(caplog: pytest.LogCaptureFixture) -> None:
    following, away = Following(), BrokerNotFoundError("no broker answers")
    with caplog.at_level(logging.WARNING):
        following.advance(0, away)
        following.advance(LIMIT_MS - 1, away)
        following.advance(0, None)
        following.advance(0, away)
        following.advance(LIMIT_MS - 1, away)
        with pytest.raises(BrokerNotFoundError):
            following.advance(1, away)
    warnings = [record for record in caplog.records if "cannot read their changelogs" in record.getMessage()]
    assert len(warnings) == 2, "one for each outage"


def test_standby_tasks_do_not_wait_for_a_right_that_is_missing() -> None:
    following = Following()
    with pytest.raises(AuthorizationError):
        following.advance(0, AuthorizationError("not allowed"))


def test_standby_tasks_begin_again_where_their_changelogs_begin_now() -> None:
    following = Following()
    for _ in range(3):
        following.advance(LIMIT_MS, OffsetOutOfRangeError("deleted"))
