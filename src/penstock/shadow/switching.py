"""Switches a running application to a changed program, at one position of its input."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from penstock.errors import ConfigError, LockError, StreamsError
from penstock.host.crashpoints import crash_point
from penstock.host.open import keeps_checkpoint
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, checkpoint_of
from penstock.host.spark.checkpoints.end_request import EndRequest
from penstock.host.spark.checkpoints.handover import hand_over, positions_of, wall_clock_nodes
from penstock.host.spark.checkpoints.lock import CheckpointLock
from penstock.host.spark.checkpoints.stored_description import digest_of_program
from penstock.host.storage.directories import application_path
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topology import built_topology
from penstock.record import TopicPartition
from penstock.shadow.comparing import VersionComparing
from penstock.shadow.comparison import VersionComparison
from penstock.shadow.pair import NOW, ShadowOptions, ShadowPair, run_in
from penstock.shadow.version import Program
from penstock_broker.common.clock import elapsed_milliseconds

_LOOK_SECONDS: Final = 0.05


class SwitchCondition(Enum):
    """The result of a comparison that a switch requires."""

    EQUAL = "equal"
    """Both versions have written the same records, and their stores have the same entries."""
    FINAL_VALUES = "final-values"
    """The last value of each key is the same, and the stores have the same entries."""

    def holds(self, found: VersionComparison) -> bool:
        """Return whether a comparison meets the condition."""
        return found.is_equal if self is SwitchCondition.EQUAL else found.has_equal_final_values


@dataclass(frozen=True)
class SwitchOptions:
    """Options of a switch.

    Args:
        comparison: where the changed version starts, and the options of the comparison.
        condition: of the switch; None for none, and then nothing is compared.
        watched_ms: with a condition, the time for which both versions process new input before they are compared.
        timeout_ms: the maximum time until the present version has ended.
    """

    comparison: ShadowOptions = field(default_factory=lambda: ShadowOptions(start=NOW))
    condition: SwitchCondition | None = None
    watched_ms: int = 60_000
    timeout_ms: int = 600_000


@dataclass(frozen=True)
class SwitchResult:
    """The result of a switch.

    Args:
        application_id: of the application.
        comparison: of both versions; None without a condition.
        epoch: the first commit of the changed version; None if the condition does not hold.
        offsets: the positions in the input topics at which it takes over, one per partition.
    """

    application_id: str
    comparison: VersionComparison | None = None
    epoch: int | None = None
    offsets: Mapping[str, list[int]] = field(default_factory=dict)

    @property
    def is_switched(self) -> bool:
        """Whether the changed version owns the application."""
        return self.epoch is not None


def switch(old: Program, new: Program, options: SwitchOptions | None = None, spark: Any = None) -> SwitchResult:
    """Hand a running application on Spark over to a changed program.

    The changed version first processes the input while the present one runs, with its outputs held back. Then the
    present version commits its last epoch and ends. The changed one processes its input up to the same offsets, and its
    state replaces that of the application. The next start of the changed program writes from there to the real topics.

    Until that last step the application belongs to the present program, which can start again at any time.

    Args:
        old: the topology and the configuration of the present version.
        new: the topology and the configuration of the changed version, with the same application.id.
        options: None for the defaults.
        spark: an existing SparkSession for the runs of the versions; None creates one for each.

    Raises:
        StreamsError: the versions cannot be switched, or the present one has not ended in time. The application still
            belongs to the present program.
        LockError: a comparison or a switch of this application runs on this machine.
    """
    given = options or SwitchOptions()
    return VersionSwitch(ShadowPair(old, new, given.comparison, run_in(spark)), given).switch()


def abort(old: Program, new: Program) -> None:
    """Delete the topics, groups and files that a killed comparison or switch has left.

    The application keeps its state and its program.

    Args:
        old: the topology and the configuration of the present version.
        new: the topology and the configuration of the changed version.

    Raises:
        LockError: a comparison or a switch of this application runs on this machine: end it with Ctrl-C.
    """
    pair = ShadowPair(old, new, ShadowOptions(), run_in(None))
    if keeps_checkpoint(pair.config):
        EndRequest(checkpoint_of(pair.config).uri).withdraw()
    pair.abort()


class VersionSwitch:
    """One switch of an application to a changed version.

    Args:
        pair: both versions.
        options: of the switch.
    """

    def __init__(self, pair: ShadowPair, options: SwitchOptions) -> None:
        self._pair = pair
        self._options = options
        self._checkpoint = checkpoint_of(pair.config)
        self._programs = tuple(built_topology(each.topology, pair.id) for each in pair.versions)

    def switch(self) -> SwitchResult:
        """Run the changed version up to the commits of the present one, and hand the application over; see `switch`."""
        pair = self._pair
        successor = self._checked_successor()
        with pair.opened() as (admin, fetcher):
            start, topics = pair.take_start(), admin.topics()
            ends: Mapping[TopicPartition, int] = self._ends()
            self._check_inputs(topics, ends)
            self._check_punctuations("present", self._checkpoint)
            pair.create(admin, start)
            found = None
            if self._options.condition is None:
                pair.run(pair.new, topics, ends)
            else:
                ends = self._run_both(topics, ends)
                found = VersionComparing(pair).compared(admin, fetcher)
                if not self._options.condition.holds(found):
                    return SwitchResult(pair.id, found)
            self._check_punctuations("changed", checkpoint_of(pair.new.config))
            self._catch_up(topics, ends)
            with self._owned(successor):
                pair.run(pair.new, topics, self._ends())
                first = hand_over(checkpoint_of(pair.new.config), self._checkpoint, successor)
        return SwitchResult(pair.id, found, first.epoch, first.offsets)

    # ---------------------------------------- checks

    def _checked_successor(self) -> str:
        """Return the digest of the changed program.

        Raises:
            ConfigError: the host or the configurations do not allow a switch.
            StreamsError: the topologies do not, or the changed program owns the application.
        """
        self._check_configurations()
        for name, built in zip(("present", "changed"), self._programs, strict=True):
            self._refuse(name, list(_obstacles(built)))
        old, new = (
            digest_of_program(built, each.given)
            for built, each in zip(self._programs, self._pair.versions, strict=True)
        )
        if self._belongs_to(new):
            raise StreamsError(f"The changed program already owns {self._pair.id}: start it.")
        if old == new:
            raise StreamsError(f"Both programs of {self._pair.id} are the same, so there is nothing to switch.")
        return new

    def _check_configurations(self) -> None:
        pair = self._pair
        if not keeps_checkpoint(pair.config):
            raise ConfigError(
                f"{pair.id} runs on threads: its state is in the changelog topics of the present program, and the "
                "changed one cannot take over a copy of it. Switch on Spark (penstock.host=spark), or restart the "
                "instances with the changed program."
            )
        if self._checkpoint.local_path is None:
            raise ConfigError(
                f"The checkpoint {self._checkpoint.uri} is not in a file system of this machine, so its lock does not "
                "show whether the present program has ended. Stop that one, and start the changed one in its place."
            )
        given = pair.new.given
        if (given["application.id"], checkpoint_of(given).uri) != (pair.id, self._checkpoint.uri):
            raise ConfigError(
                f"The changed program has the application.id {given['application.id']} and the checkpoint "
                f"{checkpoint_of(given).uri}; to take over from {pair.id}, it needs that application.id and the "
                f"checkpoint {self._checkpoint.uri}."
            )
        for each in pair.versions:
            if each.given["penstock.changelog.topics"]:
                raise ConfigError(
                    f"The {each.name} version of {pair.id} sets penstock.changelog.topics: its changelogs would not "
                    "have the state that the changed version takes over. Remove the key, or stop the application and "
                    "start the changed program in its place."
                )

    def _check_punctuations(self, name: str, checkpoint: Checkpoint) -> None:
        nodes = wall_clock_nodes(checkpoint)
        self._refuse(name, [f"its processor {node} punctuates by the wall clock, at other times" for node in nodes])

    def _refuse(self, name: str, reasons: Sequence[str]) -> None:
        if reasons:
            lines = "\n".join(f"  - {line}" for line in reasons)
            raise StreamsError(
                f"{self._pair.id} cannot be switched to another program while it runs, because of the {name} "
                f"one:\n{lines}\nStop the application, and start the changed program in its place."
            )

    def _belongs_to(self, successor: str) -> bool:
        metadata = self._checkpoint.read_metadata()
        replaced = None if metadata is None else metadata.replaced
        return replaced is not None and replaced.successor == successor

    def _check_inputs(self, topics: Mapping[str, int], ends: Mapping[TopicPartition, int]) -> None:
        known = {partition.topic for partition in ends}
        others = sorted(self._pair.topics_read(self._pair.new, topics) - known)
        if others:
            raise StreamsError(
                f"The changed program reads {', '.join(others)}, and the present one does not: the versions have no "
                f"common position there. Stop {self._pair.id}, and start the changed program in its place."
            )

    # ---------------------------------------- positions

    def _ends(self) -> dict[TopicPartition, int]:
        """Return the offsets up to which the present version has committed, as ends for the changed one."""
        return {
            TopicPartition(topic, number): offset
            for topic, offsets in positions_of(self._checkpoint).items()
            for number, offset in enumerate(offsets)
        }

    def _run_both(self, topics: Mapping[str, int], begin: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Run both versions to the newest commits for `watched_ms`; return where they have stopped.

        Raises StreamsError if nothing has come in that could be compared.
        """
        deadline = elapsed_milliseconds() + self._options.watched_ms
        ends, is_last = begin, False
        while True:
            for version in self._pair.versions:
                self._pair.run(version, topics, ends)
            if is_last:
                break
            while (is_early := elapsed_milliseconds() < deadline) and self._ends() == ends:
                time.sleep(_LOOK_SECONDS)
            ends, is_last = self._ends(), not is_early
        if ends == begin and self._options.comparison.start == NOW:
            raise StreamsError(
                f"{self._pair.id} has committed no input while both versions ran, so there is nothing to compare. "
                "Watch for a longer time (--for), or start at the beginning or a savepoint (--from)."
            )
        return ends

    def _catch_up(self, topics: Mapping[str, int], reached: Mapping[TopicPartition, int]) -> None:
        """Run the changed version to the last commit again, until the rest of the input no longer shrinks."""
        before = None
        while True:
            ends = self._ends()
            count = sum(end - reached.get(partition, 0) for partition, end in ends.items())
            if count == 0 or (before is not None and 2 * count > before):
                return
            self._pair.run(self._pair.new, topics, ends)
            reached, before = ends, count

    @contextmanager
    def _owned(self, successor: str) -> Iterator[None]:
        """Ask the present version to end, and keep others from starting.

        Raises StreamsError if it does not end in time.
        """
        directory = application_path(self._pair.config)
        lock = CheckpointLock(self._checkpoint, directory, self._pair.id)
        request = EndRequest(self._checkpoint.uri)
        request.send()
        crash_point("switch.asked", 0)
        try:
            self._await_end(lock, request)
        finally:
            request.withdraw()
        try:
            crash_point("switch.ended", 0)
            yield
        except Exception as error:
            owner = "changed" if self._belongs_to(successor) else "present"
            error.add_note(f"{self._pair.id} has ended. It belongs to the {owner} program: start that one.")
            raise
        finally:
            lock.release()

    def _await_end(self, lock: CheckpointLock, request: EndRequest) -> None:
        deadline = elapsed_milliseconds() + self._options.timeout_ms
        while True:
            try:
                lock.acquire()
            except LockError as error:
                if elapsed_milliseconds() > deadline:
                    raise StreamsError(
                        f"{self._pair.id} was asked to end, and still runs after {self._options.timeout_ms} ms. "
                        "Nothing was handed over. If it ends later, start its present program again."
                    ) from error
            else:
                return
            if not request.is_sent():  # an application that has started meanwhile has deleted it
                request.send()
            time.sleep(_LOOK_SECONDS)


def _obstacles(built: BuiltTopology) -> Iterator[str]:
    """Yield what a program has that the state of a shadow does not contain."""
    for topic, use in sorted(built.uses_of_task_topics.items()):
        yield f"its topic {topic} ({use}) has answers or requests that a shadow does not receive"
    for name in sorted(built.data_frame_sinks):
        yield f"the function of the DataFrame {name} has its own positions"
    for topic in sorted(built.histories):
        yield f"the history of {topic} belongs to the checkpoint alone"
