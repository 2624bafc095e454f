"""Runs both versions of a program up to the same end offsets, and compares what they wrote."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from penstock import savepoints
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, LockError, StreamsError
from penstock.host.deployment.layout import own_topics
from penstock.host.deployment.topics import source_topics
from penstock.host.open import keeps_checkpoint
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.lock import CheckpointLock
from penstock.plan.topology import Topology
from penstock.record import TopicPartition
from penstock.shadow.comparison import ProgramPlace, StoreComparison, TopicComparison, VersionComparison
from penstock.shadow.content import Content, Side
from penstock.shadow.outputs import PartSerdes, StoreCodec, compared_stores, read_stores, read_topic, topic_difference
from penstock.shadow.redirected_topics import delete_existing
from penstock.shadow.redirection import check_patterns
from penstock.shadow.version import Program, ShadowVersion
from penstock.streams import KafkaStreams
from penstock.termination import terminating

BEGINNING: Final = "beginning"
"""A start at the first record of each input, with empty stores."""

NOW: Final = "now"
"""A start at the last commit of the old version's application, from a savepoint that is taken for the comparison."""

_TOPICS: Final = "topics.json"
"""The file with the internal topics of a comparison, by which the next one deletes them after a kill."""

RunVersion = Callable[[Topology, StreamsConfig], object]
"""Runs a topology to its planned ends."""


@dataclass(frozen=True)
class ShadowOptions:
    """Options of a comparison.

    Args:
        start: BEGINNING, NOW or the directory of a savepoint of the old version (NOW and savepoints only on Spark).
        limit: the most differences of each topic and store in the result.
        allows_effects: whether operators with effects outside of Kafka (foreach, peek, print, calls) may run.
        keeps_outputs: whether the redirected topics stay; the next comparison deletes them.
    """

    start: str = BEGINNING
    limit: int = 10
    allows_effects: bool = False
    keeps_outputs: bool = False


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

    def run(topology: Topology, config: StreamsConfig) -> None:
        KafkaStreams(topology, config, spark).run_to_end()

    return VersionComparing(old, new, options or ShadowOptions(), run).compare()


class VersionComparing:
    """One comparison of two versions.

    Args:
        old: the present version.
        new: the changed version.
        options: of the comparison.
        run: runs a version.

    Raises ConfigError if the configuration of the old version names no application.id or no brokers.
    """

    def __init__(self, old: Program, new: Program, options: ShadowOptions, run: RunVersion) -> None:
        self._config = _checked(old[1])
        self._id = str(self._config.required("application.id"))
        # The ~ is illegal in an application.id, so no application has this directory.
        self._directory = Path(self._config["state.dir"]) / f"{self._id}~shadow"
        self._options = options
        self._run_version = run
        shared = {key: self._config.required(key) for key in ("bootstrap.servers", "penstock.host")}
        self._old, self._new = self._versions = tuple(
            ShadowVersion(name, topology, _checked(config).overridden(shared), self._id, self._directory)
            for name, (topology, config) in (("old", old), ("new", new))
        )

    def compare(self) -> VersionComparison:
        """Run and compare both versions; see `compare`."""
        if self._options.start != BEGINNING and not keeps_checkpoint(self._config):
            raise ConfigError(
                f"The threads host has no savepoints, so the state of {self._id} cannot be copied at one commit. Start "
                "both versions at the beginning of their topics (--from beginning), or compare on Spark "
                "(penstock.host=spark)."
            )
        with terminating(), self._locked(), ExitStack() as opened:
            admin, fetcher = ConfluentAdmin(self._config), ConfluentFetcher(self._config)
            opened.callback(admin.close)
            opened.callback(fetcher.close)
            self._prepare(admin)
            opened.callback(self._clean, admin)
            self._run(admin)
            return self._compared(admin, fetcher)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = CheckpointLock(Checkpoint(str(self._directory)), None, f"{self._id}-shadow")
        try:
            lock.acquire()
        except LockError as error:
            raise LockError(
                f"Another comparison of {self._id} runs on this machine and holds {self._directory}. Wait for its end, "
                "or stop it."
            ) from error
        try:
            yield
        finally:
            lock.release()

    # ---------------------------------------- topics and state

    def _prepare(self, admin: ConfluentAdmin) -> None:
        """Check both versions, then delete what a killed comparison has left."""
        topics = admin.topics()
        held = {topic for version in self._versions for topic in version.held_topics(topics)}
        for version in self._versions:
            version.check(version.redirection(topics), self._options.allows_effects)
            check_patterns(version.built, held)
        for version in self._versions:
            self._check_is_of_a_comparison(version, admin)
        for version in self._versions:
            version.await_end(admin)
        self._clean(admin)
        for version in self._versions:
            version.delete_outputs(admin)

    def _check_is_of_a_comparison(self, version: ShadowVersion, admin: ConfluentAdmin) -> None:
        """Raise StreamsError if an application has the application.id of a version and no comparison has left it."""
        if (self._directory / _TOPICS).exists() or version.has_outputs(admin):
            return
        if parts := version.existing_parts(admin):
            raise StreamsError(
                f"A comparison of {self._id} would run and then delete the application {version.application_id}, which "
                f"exists already: {', '.join(parts)}. No comparison has left it here. If it is an application of "
                f"yours, give the old program another application.id. If a comparison on another machine, or with "
                f"another state.dir, was killed, repeat it there; it deletes the application."
            )

    def _clean(self, admin: ConfluentAdmin) -> None:
        """Delete positions, state and internal topics of both versions, and their outputs unless they are kept."""
        for version in self._versions:
            version.delete_state()
            if not self._options.keeps_outputs:
                version.delete_outputs(admin)
        noted = self._directory / _TOPICS
        if noted.exists():
            delete_existing(admin, admin.topics().keys() & set(orjson.loads(noted.read_bytes())))
        for path in self._directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        noted.unlink(missing_ok=True)

    # ---------------------------------------- runs

    def _run(self, admin: ConfluentAdmin) -> None:
        start = self._options.start
        if start == NOW:
            start = str(self._directory / "savepoint")
            savepoints.take(self._config, start)
        topics = admin.topics()
        ends = admin.end_offsets(self._inputs(topics), read_committed=True)
        noted = [topic for version in self._versions for topic in version.internal_topics()]
        (self._directory / _TOPICS).write_bytes(orjson.dumps(noted))
        for version in self._versions:
            version.create_outputs(admin, topics)
            redirection = version.redirection(topics, ends=ends, from_beginning=start == BEGINNING)
            try:
                if start != BEGINNING:
                    version.restore(start)
                self._run_version(version.redirected(redirection), version.config)
            except Exception as error:
                error.add_note(f"This was the {version.name} version of {self._id}. Its outputs were held back.")
                raise

    def _inputs(self, topics: Mapping[str, int]) -> list[TopicPartition]:
        """Return the partitions that either version reads."""
        read: set[str] = set()
        for version in self._versions:
            built = version.redirection(topics).resolved(version.built)
            read |= source_topics(built) - own_topics(built)
        return [TopicPartition(topic, number) for topic in sorted(read) for number in range(topics[topic])]

    # ---------------------------------------- the comparison

    def _compared(self, admin: ConfluentAdmin, fetcher: ConfluentFetcher) -> VersionComparison:
        work = self._directory / "content"
        work.mkdir()
        content = Content(work / "content.sqlite")
        try:
            topics = self._compared_topics(content, admin, fetcher)
            stores, not_compared = self._compared_stores(content)
        finally:
            content.close()
        return VersionComparison(self._id, self._options.start, topics, stores, not_compared)

    def _compared_topics(
        self, content: Content, admin: ConfluentAdmin, fetcher: ConfluentFetcher
    ) -> tuple[TopicComparison, ...]:
        names: set[str] = set()
        for side, version in zip(Side, self._versions, strict=True):
            written = version.output_topics(admin)
            names |= written.keys()
            for topic in sorted(written):
                read_topic(version, topic, content, side, admin, fetcher)
        return tuple(self._compared_topic(content, topic) for topic in sorted(names))

    def _compared_topic(self, content: Content, topic: str) -> TopicComparison:
        found = content.compared(f"topic {topic}", self._options.limit)
        old, new = (PartSerdes(topic, *version.serdes_of(topic)) for version in self._versions)
        return TopicComparison(
            topic,
            self._old.places_of(topic),
            self._new.places_of(topic),
            found.counts,
            found.other_final_values,
            tuple(topic_difference(pair, old, new) for pair in found.examples),
        )

    def _compared_stores(self, content: Content) -> tuple[tuple[StoreComparison, ...], dict[str, str]]:
        names, not_compared = compared_stores(self._old, self._new)
        for side, version in zip(Side, self._versions, strict=True):
            not_compared |= read_stores(version, names, content, side)
        compared = [name for name in names if name not in not_compared]
        return tuple(self._compared_store(content, name) for name in compared), not_compared

    def _compared_store(self, content: Content, name: str) -> StoreComparison:
        found = content.compared(f"store {name}", self._options.limit)
        codec = StoreCodec(self._new, name)
        old, new = (ProgramPlace(name, version.built.store_lines.get(name)) for version in self._versions)
        return StoreComparison(name, old, new, found.counts, tuple(map(codec.difference, found.examples)))


def _checked(config: StreamsConfig | Mapping[str, Any]) -> StreamsConfig:
    return config if isinstance(config, StreamsConfig) else StreamsConfig(config)
