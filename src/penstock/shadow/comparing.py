"""Runs both versions of a program up to the same end offsets, and compares what they wrote."""

from __future__ import annotations

from typing import Any

from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.shadow.comparison import ProgramPlace, StoreComparison, TopicComparison, VersionComparison
from penstock.shadow.content import Content, Side
from penstock.shadow.outputs import PartSerdes, StoreCodec, compared_stores, read_stores, read_topic, topic_difference
from penstock.shadow.pair import ShadowOptions, ShadowPair, run_in
from penstock.shadow.version import Program


def compare(old: Program, new: Program, options: ShadowOptions | None = None, spark: Any = None) -> VersionComparison:
    """Run two versions of a program on the same input, and compare their outputs and stores.

    Both run one after the other, up to the present ends of the input topics, as the applications
    `<application.id>-shadow-old` and `<application.id>-shadow-new`. Their outputs go to topics of their own
    (`<application.id>-shadow-old.output.<topic>`), which are deleted at the end. The application itself may run
    meanwhile, and is not changed.

    Args:
        old: the topology and the configuration of the present version. Its brokers and its host count for both.
        new: the topology and the configuration of the changed version.
        options: None for the defaults.
        spark: an existing SparkSession; None creates one for each version.

    Raises:
        StreamsError: a version cannot be compared, does not start or fails; a note names the version.
        LockError: another comparison of this application runs on this machine.
    """
    return VersionComparing(ShadowPair(old, new, options or ShadowOptions(), run_in(spark))).compare()


class VersionComparing:
    """One comparison of two versions.

    Args:
        pair: the versions.
    """

    def __init__(self, pair: ShadowPair) -> None:
        self._pair = pair

    def compare(self) -> VersionComparison:
        """Run and compare both versions; see `compare`."""
        pair = self._pair
        with pair.opened() as (admin, fetcher):
            start = pair.take_start()
            topics = admin.topics()
            ends = admin.end_offsets(pair.inputs(topics), read_committed=True)
            pair.create(admin, start)
            for version in pair.versions:
                pair.run(version, topics, ends)
            return self.compared(admin, fetcher)

    def compared(self, admin: ConfluentAdmin, fetcher: ConfluentFetcher) -> VersionComparison:
        """Compare what both versions have written."""
        work = self._pair.directory / "content"
        work.mkdir()
        content = Content(work / "content.sqlite")
        try:
            topics = self._compared_topics(content, admin, fetcher)
            stores, not_compared = self._compared_stores(content)
        finally:
            content.close()
        return VersionComparison(self._pair.id, self._pair.options.start, topics, stores, not_compared)

    def _compared_topics(
        self, content: Content, admin: ConfluentAdmin, fetcher: ConfluentFetcher
    ) -> tuple[TopicComparison, ...]:
        names: set[str] = set()
        for side, version in zip(Side, self._pair.versions, strict=True):
            written = version.output_topics(admin)
            names |= written.keys()
            for topic in sorted(written):
                read_topic(version, topic, content, side, admin, fetcher)
        return tuple(self._compared_topic(content, topic) for topic in sorted(names))

    def _compared_topic(self, content: Content, topic: str) -> TopicComparison:
        found = content.compared(f"topic {topic}", self._pair.options.limit)
        old, new = (PartSerdes(topic, *version.serdes_of(topic)) for version in self._pair.versions)
        return TopicComparison(
            topic,
            self._pair.old.places_of(topic),
            self._pair.new.places_of(topic),
            found.counts,
            found.other_final_values,
            tuple(topic_difference(pair, old, new) for pair in found.examples),
        )

    def _compared_stores(self, content: Content) -> tuple[tuple[StoreComparison, ...], dict[str, str]]:
        names, not_compared = compared_stores(self._pair.old, self._pair.new)
        for side, version in zip(Side, self._pair.versions, strict=True):
            not_compared |= read_stores(version, names, content, side)
        compared = [name for name in names if name not in not_compared]
        return tuple(self._compared_store(content, name) for name in compared), not_compared

    def _compared_store(self, content: Content, name: str) -> StoreComparison:
        found = content.compared(f"store {name}", self._pair.options.limit)
        codec = StoreCodec(self._pair.new, name)
        old, new = (ProgramPlace(name, version.built.store_lines.get(name)) for version in self._pair.versions)
        return StoreComparison(name, old, new, found.counts, tuple(map(codec.difference, found.examples)))
