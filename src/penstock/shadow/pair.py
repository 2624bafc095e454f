"""Both versions of a program as applications of their own: their topics, state and runs."""

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


class ShadowPair:
    """Runs the versions of one comparison or switch, and cleans up after them.

    Args:
        old: the present version.
        new: the changed version.
        options: of the comparison.
        run: runs a version.

    Raises ConfigError if the configuration of the old version names no application.id or no brokers.
    """

    def __init__(self, old: Program, new: Program, options: ShadowOptions, run: RunVersion) -> None:
        self.config = _checked(old[1])
        self.id = str(self.config.required("application.id"))
        # The ~ is illegal in an application.id, so no application has this directory.
        self.directory = Path(self.config["state.dir"]) / f"{self.id}~shadow"
        self.options = options
        self._run_version = run
        shared = {key: self.config.required(key) for key in ("bootstrap.servers", "penstock.host")}
        self.old, self.new = self.versions = tuple(
            ShadowVersion(name, topology, _checked(config).overridden(shared), self.id, self.directory)
            for name, (topology, config) in (("old", old), ("new", new))
        )

    @contextmanager
    def opened(self) -> Iterator[tuple[ConfluentAdmin, ConfluentFetcher]]:
        """Check both versions, and delete what a killed comparison has left; at the end, delete what this one leaves.

        Raises:
            StreamsError: a version cannot be compared.
            LockError: another comparison of this application runs on this machine.
        """
        if self.options.start != BEGINNING and not keeps_checkpoint(self.config):
            raise ConfigError(
                f"The threads host has no savepoints, so the state of {self.id} cannot be copied at one commit. Start "
                "both versions at the beginning of their topics (--from beginning), or compare on Spark "
                "(penstock.host=spark)."
            )
        with self._clients() as (admin, fetcher), ExitStack() as opened:
            topics = admin.topics()
            held = {topic for version in self.versions for topic in version.held_topics(topics)}
            for version in self.versions:
                version.check(version.redirection(topics), self.options.allows_effects)
                check_patterns(version.built, held)
            self._delete_remains(admin)
            opened.callback(self._clean, admin)
            yield admin, fetcher

    def abort(self) -> None:
        """Delete what a killed comparison or switch has left. Raises LockError if one runs on this machine."""
        with self._clients() as (admin, _):
            self._delete_remains(admin)

    @contextmanager
    def _clients(self) -> Iterator[tuple[ConfluentAdmin, ConfluentFetcher]]:
        with terminating(), self._locked(), ExitStack() as opened:
            admin, fetcher = ConfluentAdmin(self.config), ConfluentFetcher(self.config)
            opened.callback(admin.close)
            opened.callback(fetcher.close)
            yield admin, fetcher

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = CheckpointLock(Checkpoint(str(self.directory)), None, f"{self.id}-shadow")
        try:
            lock.acquire()
        except LockError as error:
            raise LockError(
                f"Another comparison of {self.id} runs on this machine and holds {self.directory}. Wait for its end, "
                "or stop it."
            ) from error
        try:
            yield
        finally:
            lock.release()

    # ---------------------------------------- topics and state

    def _delete_remains(self, admin: ConfluentAdmin) -> None:
        for version in self.versions:
            self._check_is_of_a_comparison(version, admin)
        for version in self.versions:
            version.await_end(admin)
        self._clean(admin)
        for version in self.versions:
            version.delete_outputs(admin)

    def _check_is_of_a_comparison(self, version: ShadowVersion, admin: ConfluentAdmin) -> None:
        """Raise StreamsError if an application has the application.id of a version and no comparison has left it."""
        if (self.directory / _TOPICS).exists() or version.has_outputs(admin):
            return
        if parts := version.existing_parts(admin):
            raise StreamsError(
                f"A comparison of {self.id} would run and then delete the application {version.application_id}, which "
                f"exists already: {', '.join(parts)}. No comparison has left it here. If it is an application of "
                f"yours, give the old program another application.id. If a comparison on another machine, or with "
                f"another state.dir, was killed, repeat it there; it deletes the application."
            )

    def _clean(self, admin: ConfluentAdmin) -> None:
        """Delete positions, state and internal topics of both versions, and their outputs unless they are kept."""
        for version in self.versions:
            version.delete_state()
            if not self.options.keeps_outputs:
                version.delete_outputs(admin)
        noted = self.directory / _TOPICS
        if noted.exists():
            delete_existing(admin, admin.topics().keys() & set(orjson.loads(noted.read_bytes())))
        for path in self.directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        noted.unlink(missing_ok=True)

    # ---------------------------------------- runs

    def take_start(self) -> str:
        """Return the start of the versions: BEGINNING or a savepoint, which is taken for a start NOW."""
        if self.options.start != NOW:
            return self.options.start
        start = str(self.directory / "savepoint")
        savepoints.take(self.config, start)
        return start

    def create(self, admin: ConfluentAdmin, start: str) -> None:
        """Create the outputs of both versions, and their states at `start`."""
        topics = admin.topics()
        noted = [topic for version in self.versions for topic in version.internal_topics()]
        (self.directory / _TOPICS).write_bytes(orjson.dumps(noted))
        for version in self.versions:
            version.create_outputs(admin, topics)
            if start != BEGINNING:
                with self._named(version):
                    version.restore(start)

    def run(self, version: ShadowVersion, topics: Mapping[str, int], ends: Mapping[TopicPartition, int]) -> None:
        """Run a version up to `ends`. topics: the partitions of the topics of the brokers."""
        from_beginning = self.options.start == BEGINNING
        redirection = version.redirection(topics, ends=ends, from_beginning=from_beginning)
        with self._named(version):
            self._run_version(version.redirected(redirection), version.config)

    @contextmanager
    def _named(self, version: ShadowVersion) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            error.add_note(f"This was the {version.name} version of {self.id}. Its outputs were held back.")
            raise

    def inputs(self, topics: Mapping[str, int]) -> list[TopicPartition]:
        """Return the partitions that either version reads. topics: as for `run`."""
        read = {topic for version in self.versions for topic in self.topics_read(version, topics)}
        return [TopicPartition(topic, number) for topic in sorted(read) for number in range(topics[topic])]

    def topics_read(self, version: ShadowVersion, topics: Mapping[str, int]) -> set[str]:
        """Return the topics of others that a version reads. topics: as for `run`."""
        built = version.redirection(topics).resolved(version.built)
        return {*source_topics(built)} - own_topics(built)


def run_in(spark: Any) -> RunVersion:
    """Return what runs versions in an existing SparkSession; None creates one for each run."""

    def run(topology: Topology, config: StreamsConfig) -> None:
        KafkaStreams(topology, config, spark).run_to_end()

    return run


def _checked(config: StreamsConfig | Mapping[str, Any]) -> StreamsConfig:
    return config if isinstance(config, StreamsConfig) else StreamsConfig(config)
