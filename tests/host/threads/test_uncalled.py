"""Waiting records of another application are not those of this one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.client.api import Admin, Fetcher, OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.errors import TopicAuthorizationError
from penstock.host.deployment.layout import Layout
from penstock.host.threads.uncalled import UncalledRecords
from penstock.processor.waiting_records import WaitingRecord
from penstock.record import RecordBatch, TopicPartition
from tests.host.calling_service import Service, asking, calling, rows
from tests.host.support import Program, Runner, wait_for


@pytest.mark.one_broker
@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("runner", ["threads"], indirect=True)
def test_records_of_an_application_whose_name_begins_alike_are_not_reported(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    service: Service,
    caplog: pytest.LogCaptureFixture,
) -> None:
    service.is_up = False
    start(asking(*topics), runner.config(f"{application}-eu"))
    runner.write(topics[0], rows("a1"))
    wait_for(lambda: service.calls.total() == 1)
    program = start(calling(*topics, lambda stream: stream.peek(lambda key, value: None)), runner.config(application))
    program.run_to_end()
    program.restart()
    assert f"{application}-eu-ask-answers" in runner.admin.topics()
    assert "wait" not in caplog.text


class SharedBrokers:
    """Brokers of two applications, shop and shop-eu: shop sees all topics, and may read its own only."""

    topics = dict.fromkeys(("shop-ask-answers", "shop-asked-changelog", "shop-eu-sums-changelog"), 1)

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {each: OffsetAndMetadata(1) for each in partitions if each.topic == "shop-ask-answers"}

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Collection[TopicPartition], read_committed: bool) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 1)

    def fetch(self, partition: TopicPartition, start: int, end: int, read_committed: bool) -> Iterator[RecordBatch]:
        if partition.topic != "shop-asked-changelog":
            raise TopicAuthorizationError(f"The topic {partition.topic} may not be read.")
        value = WaitingRecord(b"k", b"v", 0, (), "in", 0, 7, call_id="in-0-7-ask").pack()
        yield RecordBatch.of([(b"k", value, 0, 0, ())])

    def close(self) -> None:
        pass


def test_changelogs_that_the_application_may_not_read_are_those_of_others(caplog: pytest.LogCaptureFixture) -> None:
    brokers = SharedBrokers()
    layout = SimpleNamespace(
        config=StreamsConfig({"application.id": "shop"}), topology=SimpleNamespace(subtopologies=())
    )
    records = UncalledRecords(cast(Layout, layout), cast(Admin, brokers), lambda: cast(Fetcher, brokers))
    records.warn(brokers.topics, {})
    assert "1 record of operator ask waits for calls in store asked" in caplog.text
