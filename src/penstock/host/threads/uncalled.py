"""Looks for waiting records of calls in changelogs that the tasks of an instance do not read."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import partial

from penstock.client.api import Admin, Fetcher, OffsetAndMetadata
from penstock.errors import AuthorizationError
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.lost_topics import recorded_topics
from penstock.host.deployment.uncalled_records import (
    UncalledStore,
    answers_topic,
    operator_of,
    operators_with_answers,
    warn_of_uncalled_records,
)
from penstock.record import RecordBatch, TopicPartition
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
        stores = self._stores(topics)
        named = operators_with_answers(self._application_id, topics) if stores else ()
        operators = {each for each in named if self._is_own(each, topics, committed)}
        if not operators:
            return
        found: list[UncalledStore] = []
        with closing(self._open_fetcher()) as fetcher:
            for store in stores:
                partitions = self._partitions(store, topics)
                operator = operator_of(store, operators, partial(self._first_value, fetcher, partitions))
                if operator is not None:
                    found.append(UncalledStore(store, operator, self._waiting(fetcher, partitions)))
        changelog = f"{self._application_id}-{{store}}{CHANGELOG_SUFFIX}"
        answers = answers_topic(self._application_id, "{operator}")
        warn_of_uncalled_records(found, f"delete the topics {changelog} and {answers} (penstock topics delete)")

    def _stores(self, topics: Mapping[str, int]) -> list[str]:
        """Return the stores whose changelogs are not read."""
        begin = f"{self._application_id}-"
        changelogs = (each for each in topics if each.startswith(begin) and each.endswith(CHANGELOG_SUFFIX))
        return [
            each.removeprefix(begin).removesuffix(CHANGELOG_SUFFIX) for each in changelogs if each not in self._read
        ]

    def _is_own(
        self, operator: str, topics: Mapping[str, int], committed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> bool:
        """Return whether the group has used the answers topic: another application's name may begin with this one's."""
        answers = answers_topic(self._application_id, operator)
        if recorded_topics([answers], committed):
            return True
        partitions = [TopicPartition(answers, number) for number in range(topics[answers])]
        return bool(self._admin.committed_offsets(self._application_id, partitions, stable=False))

    def _partitions(self, store: str, topics: Mapping[str, int]) -> list[TopicPartition]:
        changelog = changelog_name(self._application_id, store)
        return [TopicPartition(changelog, number) for number in range(topics[changelog])]

    def _waiting(self, fetcher: Fetcher, partitions: list[TopicPartition]) -> int:
        """Return the number of keys with a value."""
        live: set[tuple[TopicPartition, bytes]] = set()
        for partition, batch in self._batches(fetcher, partitions):
            for key, value in zip(batch.keys, batch.values, strict=True):
                (live.discard if value is None else live.add)((partition, key))
        return len(live)

    def _first_value(self, fetcher: Fetcher, partitions: list[TopicPartition]) -> bytes | None:
        """Return the first value that is there, None without one.

        None also if this application may not read it: then the changelog is that of another one.
        """
        try:
            with closing(self._batches(fetcher, partitions)) as batches:
                return next((value for _, batch in batches for value in batch.values if value is not None), None)
        except AuthorizationError:
            return None

    def _batches(
        self, fetcher: Fetcher, partitions: list[TopicPartition]
    ) -> Generator[tuple[TopicPartition, RecordBatch]]:
        """Yield the records of changelogs."""
        begins, ends = self._admin.beginning_offsets(partitions), self._admin.end_offsets(partitions, True)
        for partition in partitions:
            if begins[partition] < ends[partition]:
                for batch in fetcher.fetch(partition, begins[partition], ends[partition], read_committed=True):
                    yield partition, batch
