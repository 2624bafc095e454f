"""The lag that KEDA counts for an application, by the requests of its Kafka scaler (pkg/scalers/kafka_scaler.go)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from penstock import Consumed, Grouped, KafkaStreams, Produced, Serdes, StreamsBuilder, Topology
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.host.support import ON_SPARK, InputRecord, Runner, lines, wait_for
from tests.support.api_keys import FIND_COORDINATOR, LIST_OFFSETS, METADATA, OFFSET_FETCH
from tests.support.group_requests import await_coordinator
from tests.support.protocol_client import ProtocolClient

pytestmark = [pytest.mark.partitions(3, 1)]

TEXT = Serdes.string()
LATEST = -1


class Versions(NamedTuple):
    """The versions of the requests that KEDA's client, sarama 1.60.1, sends for a version of Kafka."""

    metadata: int
    find_coordinator: int
    offset_fetch: int
    list_offsets: int = 1


VERSIONS = {"1.0.0": Versions(5, 1, 3), "3.7.0": Versions(11, 3, 8), "4.0.0": Versions(11, 3, 8)}
"""By the `version` of the trigger."""


class Scaler:
    """Counts the lag of a group with `offsetResetPolicy: earliest` and no `topic`.

    Args:
        client: a connection to the only broker.
        group: the group.
        versions: of the requests.
    """

    def __init__(self, client: ProtocolClient, group: str, versions: Versions) -> None:
        self._client = client
        self._group = group
        self._versions = versions
        await_coordinator(client, group)
        found = client.call(FIND_COORDINATOR, versions.find_coordinator, {"key": group, "key_type": 0})
        assert found["error_code"] == ErrorCode.none

    def lag(self) -> int:
        """Return the lag of all partitions of the topics for which the group has offsets."""
        described = self._call_metadata([{"name": topic} for topic in self.committed(None)])
        partitions = {
            topic["name"]: [each["partition_index"] for each in topic["partitions"]] for topic in described["topics"]
        }
        wanted = [{"name": name, "partition_indexes": numbers} for name, numbers in partitions.items()]
        committed, ends = self.committed(wanted), self._ends(partitions)
        return sum(end - max(committed[topic][number], 0) for topic, own in ends.items() for number, end in own.items())

    def committed(self, topics: list[Message] | None) -> dict[str, dict[int, int]]:
        """Return the offsets of the group, -1 for a partition without one; None asks for all that it has."""
        version = self._versions.offset_fetch
        if version < 8:
            answer = self._client.call(OFFSET_FETCH, version, {"group_id": self._group, "topics": topics})
        else:
            groups = [{"group_id": self._group, "topics": topics}]
            [answer] = self._client.call(OFFSET_FETCH, version, {"groups": groups, "require_stable": False})["groups"]
        assert answer["error_code"] == ErrorCode.none
        return _by_partition(answer["topics"], "committed_offset")

    def _call_metadata(self, topics: list[Message]) -> Message:
        # Sarama sends null for an empty list, which asks for all topics.
        body: Message = {"topics": topics or None, "allow_auto_topic_creation": False}
        return self._client.call(METADATA, self._versions.metadata, body)

    def _ends(self, partitions: dict[str, list[int]]) -> dict[str, dict[int, int]]:
        topics = [
            {"name": name, "partitions": [{"partition_index": number, "timestamp": LATEST} for number in numbers]}
            for name, numbers in partitions.items()
        ]
        body: Message = {"replica_id": -1, "topics": topics}
        answer = self._client.call(LIST_OFFSETS, self._versions.list_offsets, body)
        return _by_partition(answer["topics"], "offset")


def _by_partition(topics: Iterable[Message], field: str) -> dict[str, dict[int, int]]:
    assert all(each["error_code"] == ErrorCode.none for topic in topics for each in topic["partitions"])
    return {topic["name"]: {each["partition_index"]: each[field] for each in topic["partitions"]} for topic in topics}


def counting(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(source, Consumed.with_(TEXT, TEXT))
    counts = words.group_by(lambda _, word: word, Grouped.with_(TEXT, TEXT)).count()
    counts.to_stream().to(target, Produced.with_(TEXT, Serdes.long()))
    return builder.build()


def check_lag(runner: Runner, application: str, topics: tuple[str, str], guarantee: str) -> None:
    """Check the lag of an application without any, and of records that came after its end."""
    config = runner.config(application, {"processing.guarantee": guarantee})
    with ProtocolClient(runner.bootstrap_servers) as client:
        scalers = {name: Scaler(client, application, versions) for name, versions in VERSIONS.items()}
        runner.write(topics[0], lines(["a", "b", "a", "c", "b"], partitions=3))
        with KafkaStreams(counting(*topics), config, **runner.options()):
            wait_for(lambda: len(runner.read(topics[1])) == 5 and scalers["3.7.0"].lag() == 0)
        assert {name: scaler.lag() for name, scaler in scalers.items()} == dict.fromkeys(VERSIONS, 0)
        runner.write(topics[0], [InputRecord(None, b"d", 2_000, number % 3) for number in range(7)])
        assert {name: scaler.lag() for name, scaler in scalers.items()} == dict.fromkeys(VERSIONS, 7)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("runner", ["threads"], indirect=True)
def test_keda_counts_the_records_that_threads_have_not_processed(
    runner: Runner, application: str, topics: tuple[str, str], guarantee: str
) -> None:
    check_lag(runner, application, topics, guarantee)


@pytest.mark.one_broker
@pytest.mark.parametrize("runner", [ON_SPARK], indirect=True)
def test_keda_counts_the_records_that_spark_has_not_processed(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    check_lag(runner, application, topics, "exactly_once_v2")
