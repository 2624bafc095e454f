"""Looks for waiting records of calls in changelogs that the tasks of an instance do not read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing

from penstock.client.api import Admin, Fetcher, OffsetAndMetadata
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.lost_topics import recorded_topics
from penstock.host.deployment.uncalled_records import answers_topic, stores_of_calls, warn_of_uncalled_records
from penstock.record import TopicPartition
from penstock.topic_names import CHANGELOG_SUFFIX, changelog_name


class UncalledRecords:
    """The changelogs of calls that an application has written, and that its program no longer reads.

    Args:
        layout: the tasks.
        admin: a client of the brokers.
        open_fetcher: opens a client that reads changelogs.
    """

    def __init__(self, layout: Layout, admin: Admin, open_fetcher: Callable[[], Fetcher]) -> None:
        self._application_id = str(layout.config["application.id"])
        self._read = {topic for spec in layout.topology.subtopologies for topic, _ in spec.changelogs.values()}
        self._admin = admin
        self._open_fetcher = open_fetcher

    def warn(self, topics: Mapping[str, int], committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Log how many records wait in them.

        Args:
            topics: the number of partitions of each topic.
            committed: the offsets of the group, with their metadata.
        """
        stores = [each for each in self._stores(topics) if self._is_own(each, topics, committed)]
        if stores:
            with closing(self._open_fetcher()) as fetcher:
                waiting = {store: self._waiting(fetcher, self._partitions(store, topics)) for store in stores}
            delete = f"delete the topics {self._application_id}-{{store}}{CHANGELOG_SUFFIX} and that of its answers"
            warn_of_uncalled_records(waiting, f"{delete} (penstock topics delete)")

    def _stores(self, topics: Mapping[str, int]) -> list[str]:
        """Return the stores of calls whose changelogs are not read."""
        begin = f"{self._application_id}-"
        changelogs = (each for each in topics if each.startswith(begin) and each.endswith(CHANGELOG_SUFFIX))
        stores = [
            each.removeprefix(begin).removesuffix(CHANGELOG_SUFFIX) for each in changelogs if each not in self._read
        ]
        return [*stores_of_calls(self._application_id, stores, topics)]

    def _is_own(
        self, store: str, topics: Mapping[str, int], committed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> bool:
        """Return whether the group has used the answers topic: another application's name may begin with this one's."""
        answers = answers_topic(self._application_id, store)
        if recorded_topics([answers], committed):
            return True
        partitions = [TopicPartition(answers, number) for number in range(topics[answers])]
        return bool(self._admin.committed_offsets(self._application_id, partitions, stable=False))

    def _partitions(self, store: str, topics: Mapping[str, int]) -> list[TopicPartition]:
        changelog = changelog_name(self._application_id, store)
        return [TopicPartition(changelog, number) for number in range(topics[changelog])]

    def _waiting(self, fetcher: Fetcher, partitions: list[TopicPartition]) -> int:
        """Return the number of keys with a value."""
        begins, ends = self._admin.beginning_offsets(partitions), self._admin.end_offsets(partitions, True)
        return sum(_live_keys(fetcher, each, begins[each], ends[each]) for each in partitions)


def _live_keys(fetcher: Fetcher, partition: TopicPartition, begin: int, end: int) -> int:
    live: set[bytes] = set()
    for batch in fetcher.fetch(partition, begin, end, read_committed=True) if begin < end else ():
        for key, value in zip(batch.keys, batch.values, strict=True):
            (live.discard if value is None else live.add)(key)
    return len(live)
