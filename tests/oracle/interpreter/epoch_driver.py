"""A test driver that runs a step as the Spark host runs an epoch: level by level, each with one commit, and processors
and record cache live as long.

Kafka's driver runs the whole topology as one task, with one stream time, where in Kafka itself each sub-topology has
its own. It commits after each record, also of those that follow from one; of records with one time it takes the one
that came first; it counts the offsets of a pattern as those of one topic; its record cache, which is never full, shows
entries for ever that the store below has dropped; it makes punctuations due only when its clock is advanced; and it
holds final results back for an interval, beyond the end of an epoch. Where a result depends on that, this driver says
what is to be expected of the Spark host; everything else it has from the driver that all conformance cases are checked
against.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from penstock import StreamsConfig, Topology
from penstock.host.deployment.topics import resolve_patterns
from penstock.host.inline.inline_host import PARTITION, InlineHost
from penstock.host.spark.protocol.placement import place
from penstock.plan.subtopology import BuiltTopology, SourceSpec
from penstock.record import NO_TIMESTAMP, RecordBatch
from penstock.task.punctuation import EpochSchedules, LivingSchedules, Schedules
from penstock.task.stream_task import StreamTask
from penstock.task.task_checkpoint import TaskCheckpoint
from penstock.testing import TopologyTestDriver
from penstock_broker.common.clock import Clock


class _EpochHost(InlineHost):
    """Processes what waits, level by level; each commit ends the task."""

    def __init__(self, topology: BuiltTopology, config: StreamsConfig, clock: Clock, topics: Collection[str]) -> None:
        resolved = resolve_patterns(topology, dict.fromkeys(topics, 1), frozenset(topology.repartition_topics), config)
        placement = place(resolved, dict.fromkeys(topics, 1), 1)
        self._levels = len(placement.levels)
        self._level_of = {task.subtopology: level for level, tasks in enumerate(placement.levels) for task in tasks}
        self._part_of = {topic: part.id for part in resolved.subtopologies for topic in part.source_topics}
        self._stream_times = dict.fromkeys(self._level_of, NO_TIMESTAMP)
        self._waiting: dict[str, deque[RecordBatch]] = {}
        super().__init__(topology, config, clock)
        self.punctuate_wall_clock()

    def _buffer(self, topic: str, batch: RecordBatch) -> None:
        self._waiting.setdefault(topic, deque()).append(batch)

    def _process_queues(self) -> None:
        while any(self._waiting.values()):
            for level in range(self._levels):
                while self._process_first(level):
                    pass
                self._task.advance_wall_clock(self._clock.milliseconds())
                self._task.emit_held_results()
                self._commit()

    def _process_first(self, level: int) -> bool:
        """Process the record of the level with the smallest timestamp, of several the one first by topic."""
        waiting = [
            (int(queue[0].timestamps[0]), topic)
            for topic, queue in self._waiting.items()
            if queue and self._level_of[self._part_of[topic]] == level
        ]
        if not waiting:
            return False
        _, topic = min(waiting)
        part = self._part_of[topic]
        self._task._context.stream_time = self._stream_times[part]
        self._task.add_records(topic, PARTITION, self._waiting[topic].popleft())
        self._task.process()
        self._stream_times[part] = self._task._context.stream_time
        return True

    def _make_task(self, checkpoint: TaskCheckpoint, schedules: Schedules) -> StreamTask:
        return super()._make_task(checkpoint, EpochSchedules(checkpoint.schedules))

    def _log_of(self, source: SourceSpec, topic: str) -> str:
        return topic

    def _commit(self) -> None:
        super()._commit()
        checkpoint = TaskCheckpoint.decode(self._task.checkpoint().encode())
        self._task.close()
        self._task = self._make_task(checkpoint, LivingSchedules())
        self._stores.update({name: self._task.store(name) for name in self._spec.stores})
        for topic in self._topics:
            source = self._source_of(topic)
            assert source is not None
            self._task.add_source_topic(topic, source.name)


class EpochTestDriver(TopologyTestDriver):
    """See the module."""

    def __init__(
        self, topics: Collection[str], topology: Topology, config: Mapping[str, Any], initial_wall_clock_ms: int
    ) -> None:
        """Make the task. topics: all that are on the brokers; the others as for TopologyTestDriver."""
        super().__init__(topology, config, initial_wall_clock_ms)
        self._host.close()
        checked = StreamsConfig(config)
        built = topology.build(checked.required("application.id"))
        self._host = _EpochHost(built, checked, self._clock, topics)
