"""State that this machine has of topics which were deleted and created again since, such as by a reset that ran on
another machine, on an embedded broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentConsumer, ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Materialized
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.threads.changelog_reader import ChangelogReader
from penstock.host.threads.clients import GroupAdmin
from penstock.host.threads.restoring import StateOpener
from penstock.host.threads.standbys import Standbys
from penstock.host.threads.vocabulary import GLOBAL_TASK
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import built_topology
from penstock.record import TopicPartition
from penstock.serdes import Serdes
from penstock.state.memory import MemoryBase
from penstock.task.changelog_copy import ChangelogCopy, ChangelogStamp
from penstock_broker.common.clock import MockClock
from tests.host.threads.inline import KeptBase
from tests.support.brokers import EMBEDDED_ONLY, RunningBroker
from tests.support.plain_producer import PlainProducer
from tests.support.waiting import until

pytestmark = EMBEDDED_ONLY

TASK = TaskId(0, 0)


class Counting:
    """A count and a global table, whose topics are created again."""

    def __init__(self, broker: RunningBroker, unique_name: Callable[[str], str], opened: ExitStack) -> None:
        self.name, self.source, self.rates = unique_name("app"), unique_name("in"), unique_name("rates")
        serdes = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        self.config = StreamsConfig({"application.id": self.name, **servers, **serdes})
        self.admin = opened.enter_context(closing(GroupAdmin(self.config)))
        self.changelog = TopicPartition(f"{self.name}-counts-changelog", 0)
        for topic in (self.source, self.rates, self.changelog.topic):
            self.admin.create_topics([NewTopic(topic, 1)])
        builder = StreamsBuilder()
        builder.stream(self.source).group_by_key().count(Materialized.as_("counts"))
        builder.global_table(self.rates, materialized=Materialized.as_("rates"))
        self.layout: Layout = layout_of(built_topology(builder.build(), self.name), self.config, self.admin.topics())

    def write(self, topic: str, *keys: bytes) -> None:
        with closing(PlainProducer(self.config)) as producer:
            for key in keys:
                producer.send(topic, key, bytes(8), 0, 5)

    def create_again(self, topic: str) -> None:
        self.admin.delete_topics([topic])
        assert until(lambda: topic not in self.admin.topics())
        self.admin.create_topics([NewTopic(topic, 1)])

    def restore(self, base: MemoryBase, task: TaskId = TASK) -> ChangelogStamp:
        with closing(ConfluentFetcher(self.config)) as fetcher:
            reader = ChangelogReader(self.admin, fetcher)
            return StateOpener(self.layout, self.admin, reader, lambda _: base, MockClock(0)).open(task).stamp


@pytest.fixture
def counting(broker: RunningBroker, unique_name: Callable[[str], str]) -> Iterator[Counting]:
    with ExitStack() as opened:
        yield Counting(broker, unique_name, opened)


def keys(base: MemoryBase, store: str = "counts") -> list[bytes]:
    return [key for key, _ in base.view(store).range(None, None, False)]


def test_state_of_a_changelog_that_was_created_again_is_not_kept(
    counting: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    base = KeptBase()
    counting.write(counting.changelog.topic, b"a", b"b")
    assert counting.restore(base).offsets == {counting.changelog: 2}
    counting.write(counting.changelog.topic, b"c")
    assert (counting.restore(base).offsets, keys(base)) == ({counting.changelog: 3}, [b"a", b"b", b"c"])
    counting.create_again(counting.changelog.topic)
    counting.write(counting.changelog.topic, b"d", b"e", b"f", b"g")  # more than the other had
    assert (counting.restore(base).offsets, keys(base)) == ({counting.changelog: 4}, [b"d", b"e", b"f", b"g"])
    assert "The copy of counts is emptied and restored again" in caplog.text


def test_a_standby_does_not_keep_state_of_a_changelog_that_was_created_again(counting: Counting) -> None:
    base = KeptBase()
    counting.write(counting.changelog.topic, b"a", b"b")
    counting.restore(base)
    counting.create_again(counting.changelog.topic)
    counting.write(counting.changelog.topic, b"c", b"d", b"e")
    standbys = Standbys(counting.layout, counting.admin, lambda: ConfluentConsumer(counting.config), lambda _: base)
    with closing(standbys):
        standbys.add(TASK)
        assert until(lambda: standbys.advance() is not None and standbys.positions() == {TASK: 3})
        assert keys(base) == [b"c", b"d", b"e"]


def test_entries_of_a_global_topic_that_was_created_again_are_not_kept(counting: Counting) -> None:
    rates, base = TopicPartition(counting.rates, 0), KeptBase()
    counting.write(counting.rates, b"a", b"b")
    stamp = counting.restore(base, GLOBAL_TASK)
    known = ChangelogStamp(stamp.layouts, {rates: 2}, topic_ids=stamp.topic_ids)
    base.apply({"rates": {b"a": bytes(8)}}, known.encode())
    assert (counting.restore(base, GLOBAL_TASK), keys(base, "rates")) == (known, [b"a"])
    counting.create_again(counting.rates)
    counting.write(counting.rates, b"c", b"d", b"e")
    assert (counting.restore(base, GLOBAL_TASK).offsets, keys(base, "rates")) == ({}, [])


def test_state_of_earlier_versions_has_no_ids_and_is_kept(counting: Counting) -> None:
    base = KeptBase()
    counting.write(counting.changelog.topic, b"a", b"b")
    stores, changelogs = counting.layout.spec(TASK).stores, counting.layout.changelogs(TASK)
    layouts = ChangelogCopy(stores, changelogs, counting.config, MemoryBase()).stamp.layouts
    without = b'[{"counts":"%b"},[["%b",0,2]],{}]'
    topic = counting.changelog.topic.encode()
    base.apply({"counts": {b"kept": bytes(16)}}, without % (layouts["counts"].encode(), topic))
    assert counting.restore(base).offsets == {counting.changelog: 2}
    assert keys(base) == [b"kept"]
