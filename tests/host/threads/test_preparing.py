"""The preparation of an instance whose brokers answer, but cannot serve its requests yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

import pytest

from penstock.client.api import Admin, NewTopic, OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.errors import BrokerNotFoundError, KafkaError, RetriableError
from penstock.host.deployment.layout import Layout
from penstock.host.threads.preparing import first_layout
from penstock.plan.topology import built_topology
from penstock.record import TopicPartition
from tests.host.threads.memory_broker import MemoryBroker

REQUEST_MS = 10_000
"""How long a request takes that is not served."""

LOADING = RetriableError("COORDINATOR_LOAD_IN_PROGRESS.")
REQUESTS = ("committed_offsets", "topic_ids", "create_topics")


class LoadingBroker(MemoryBroker):
    """Does not serve one kind of request before a time; its clock moves with requests and pauses."""

    def __init__(self, request: str, until_ms: int, error: KafkaError = LOADING) -> None:
        super().__init__({"in": 2, "out": 1})
        self.now_ms, self.created = 0, list[str]()
        self._request, self._until_ms, self._error = request, until_ms, error

    def wait(self, seconds: float) -> bool:
        self.now_ms += int(1000 * seconds)
        return False

    def _serve(self, request: str) -> None:
        if request == self._request and self.now_ms < self._until_ms:
            self.now_ms += REQUEST_MS
            raise self._error

    def topics(self) -> dict[str, int]:
        self._serve("topics")
        return super().topics()

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        self._serve("topic_ids")
        return {}

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        self._serve("create_topics")
        self.created += [topic.name for topic in topics]
        for topic in topics:
            self.create_topic(topic.name, topic.partitions)

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._serve("committed_offsets")
        return {}


def prepare(broker: LoadingBroker, values: Mapping[str, object] | None = None) -> Layout:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count().to_stream().to("out")
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", **(values or {})})
    return first_layout(
        built_topology(builder.build(), "app"), config, cast(Admin, broker), broker.wait, lambda: broker.now_ms
    )


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_that_brokers_cannot_serve_for_a_minute_is_repeated(request_: str) -> None:
    broker = LoadingBroker(request_, until_ms=60_000)
    assert len(prepare(broker).groups) == 2
    assert broker.now_ms >= 60_000
    assert len(broker.created) == 1


def test_it_is_an_error_after_the_task_timeout() -> None:
    broker = LoadingBroker("committed_offsets", until_ms=60_000)
    with pytest.raises(RetriableError, match="COORDINATOR_LOAD"):
        prepare(broker, {"task.timeout.ms": 30_000})
    assert 30_000 <= broker.now_ms < 60_000


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ("topics", BrokerNotFoundError("No broker of bootstrap.servers answered.")),
        ("committed_offsets", KafkaError("refused")),
    ],
)
def test_an_error_that_time_does_not_mend_is_raised_at_once(request_: str, error: KafkaError) -> None:
    broker = LoadingBroker(request_, until_ms=60_000, error=error)
    with pytest.raises(type(error)):
        prepare(broker)
    assert broker.now_ms == REQUEST_MS


def test_a_close_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = LoadingBroker("committed_offsets", until_ms=60_000)
    monkeypatch.setattr(broker, "wait", lambda seconds: True)
    with pytest.raises(RetriableError):
        prepare(broker)
    assert broker.now_ms == REQUEST_MS
