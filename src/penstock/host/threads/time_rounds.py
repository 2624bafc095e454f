"""Tasks that feed repartition topics read history together in time: KIP-28's synchronised inputs, between tasks.

What such tasks send meets in the tasks behind the repartition topic. If one of them were far ahead in its partition,
the records of the others would arrive there late, and windows would drop them. So the tasks of one sub-topology that
this instance runs read history, records that are older than `penstock.max.skew.ms` by the clock, in rounds: each of
them reads up to a common time, and what they have sent goes on in the order of its time when the last one is there. A
round holds about one slice of time of each task, and ends before a commit. Newer records are taken as they arrive, as
in Kafka: there, tasks are no further apart than that.

No task waits for ever. One waits for a partition of which more is known to be there than has arrived, or nothing yet,
for `MOST_SILENT_MS`. Timestamps in the future count as the present. A round ends after `MOST_ROUND_MS`, whatever its
tasks do, such as a function that does not return, or a pause.

Part of the core: no I/O, no clock, no thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from penstock.config import StreamsConfig
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.record_time import topics_with_own_time
from penstock.host.threads.active_task import ActiveTask
from penstock.plan.subtopology import BuiltTopology, SinkSpec, TaskId
from penstock.record import PartitionBatch, RecordBatch, TopicPartition, running_maximum

MOST_SILENT_MS: Final = 5_000
MOST_ROUND_MS: Final = 1_000
_MANY_TASKS: Final = 10
"""With more tasks, each reads less in a round, so that a round takes no more than so many slices of time."""


def feeding_topics(topology: BuiltTopology, config: StreamsConfig) -> dict[int, frozenset[str]]:
    """Return the repartition topics that each sub-topology feeds whose tasks read history together: none if it reads a
    topic by other times than those of its records."""
    own_time = topics_with_own_time(topology, config)
    feeding = {
        spec.id: frozenset(n.topic for n in spec.nodes if isinstance(n, SinkSpec) and n.repartition and n.topic)
        for spec in topology.subtopologies
        if config["penstock.max.skew.ms"] > 0 and own_time.isdisjoint(spec.source_topics)
    }
    return {id: topics for id, topics in feeding.items() if topics}


def aligned_partitions(layout: Layout) -> frozenset[TopicPartition]:
    """Return the partitions of the tasks that read history together: what their ends are must be known."""
    feeding = feeding_topics(layout.topology, layout.config)
    return frozenset(p for task, group in layout.groups.items() if task.subtopology in feeding for p in group)


def awaited_topics(topology: BuiltTopology, feeding: Mapping[int, frozenset[str]]) -> dict[int, frozenset[str]]:
    """Return of the repartition topics that sub-topologies feed those that other tasks wait for: whose records do not
    come back to the sub-topology that has sent them, which might wait for itself."""
    sent = {
        spec.id: frozenset(n.topic for n in spec.nodes if isinstance(n, SinkSpec) and n.repartition)
        for spec in topology.subtopologies
    }

    def behind(topics: frozenset[str | None], found: frozenset[int] = frozenset()) -> frozenset[int]:
        readers = {each.id for each in topology.subtopologies if not topics.isdisjoint(each.source_topics)} - found
        return found if not readers else behind(frozenset().union(*(sent[id] for id in readers)), found | readers)

    return {id: frozenset(t for t in topics if id not in behind(frozenset([t]))) for id, topics in feeding.items()}


class TimeRounds:
    """The rounds of the tasks of one sub-topology."""

    def __init__(self, topics: frozenset[str], skew_ms: int) -> None:
        """Begin without tasks. topics: the repartition topics that they feed."""
        self.is_in_history = True
        """Whether tasks read history, or may have to."""
        self._sent_ms: int | None = None
        """When history was sent last that may not have arrived; None if a commit came after it."""
        self.tasks: dict[TaskId, ActiveTask] = {}
        self._topics = topics
        self._skew_ms = skew_ms
        self._until: int | None = None
        """The common time (ms) up to which the tasks read in the round that goes on; None for no round."""
        self._began = 0
        self.is_blocked = False
        """Whether no round can begin, for records that may be older have not arrived yet."""
        self._is_live = False
        """Whether all tasks had no history left when they were looked at last."""
        self._looked_ms = 0
        self._silent: dict[TopicPartition, int] = {}
        """Since when (ms) partitions have been waited for, of which nothing has arrived or been taken."""
        self._sent: dict[TaskId, list[PartitionBatch]] = {}
        self._ready: list[PartitionBatch] = []

    def change(self) -> None:
        """Take that there are other tasks now."""
        self._is_live = False

    def forget(self) -> None:
        """Take that all tasks begin again: what they have sent is made again."""
        self._until, self.is_blocked, self._is_live = None, False, False
        self.is_in_history, self._sent_ms = True, None
        self._silent.clear()
        self._sent.clear()
        self._ready.clear()

    def look(self, ends: Mapping[TopicPartition, int], now: int, wall: int) -> None:
        """End a round that takes too long, and begin one if there is history to read. now: by the clock of the core
        (ms); wall: by that of the records."""
        if self._until is not None and now - self._began >= MOST_ROUND_MS:
            stuck = [p for task in self._together() for p in self._left(task)]
            self._silent = {p: self._silent.get(p, self._began) for p in stuck}
            self._end()
        if self._until is None and not (self._is_live and self._are_live(wall)):
            self._begin(ends, now, wall)
        self._looked_ms = now

    def is_on_the_way(self, now: int) -> bool:
        """Return whether all history is read, and what follows from it may not have arrived."""
        is_sent = self._sent_ms is not None and now - self._sent_ms < MOST_ROUND_MS
        return is_sent and not self.is_in_history

    def is_behind(self, now: int) -> bool:
        """Return whether history is still to arrive in the repartition topics."""
        return self.is_in_history or self.is_on_the_way(now)

    def written(self) -> None:
        """Take that all that was sent can be read."""
        if self._until is None:
            self._sent_ms = None

    def share(self, task: ActiveTask) -> dict[TopicPartition, int] | None:
        """Return how many records of each partition a task may take now, None for any number."""
        if self._until is None:
            return dict.fromkeys(task.partitions, 0) if self.is_blocked else None
        return {partition: task.arrived.records_until(partition, self._until) for partition in task.partitions}

    def sends(self, task: TaskId, output: Sequence[PartitionBatch]) -> Sequence[PartitionBatch]:
        """Return what goes on at once of what a task has sent; the rest is kept for the end of the round."""
        if self.is_in_history and output:
            self._sent_ms = self._looked_ms
        if self._until is None:
            return output
        self._sent.setdefault(task, []).extend(each for each in output if each.topic in self._topics)
        if not any(self._left(each) for each in self._together()):
            self._silent.clear()
            self._end()
        return [each for each in output if each.topic not in self._topics]

    def released(self) -> list[PartitionBatch]:
        """Return what goes on now, since the round is over in which it was sent."""
        ready, self._ready = self._ready, []
        return ready

    def release(self) -> list[PartitionBatch]:
        """End the round, and return what was kept for its end."""
        self._end()
        return self.released()

    def is_going_on(self, now: int) -> bool:
        """Return whether a commit waits for the end of the round."""
        return self._until is not None and now - self._began < MOST_ROUND_MS

    def next_due_ms(self) -> int | None:
        """Return when something changes though no event comes (ms)."""
        if self._until is not None:
            return self._began + MOST_ROUND_MS
        if self.is_blocked or self.is_in_history:
            return min((since + MOST_SILENT_MS for since in self._silent.values()), default=None)
        return None if self._sent_ms is None else self._sent_ms + MOST_ROUND_MS

    def _together(self) -> list[ActiveTask]:
        """Return the tasks that read together: not those whose function does not return."""
        return [task for task in self.tasks.values() if not task.is_aside]

    def _left(self, task: ActiveTask) -> list[TopicPartition]:
        """Return the partitions of a task that are not read to the end of the round."""
        assert self._until is not None
        return [p for p, head in task.arrived.heads().items() if task.is_out or head <= self._until] or (
            list(task.partitions) if task.is_out else []
        )

    def _end(self) -> None:
        """End the round: what was kept goes on in the order of its time; of equal times, that of the first task goes
        first."""
        self._until = None
        lanes: dict[tuple[str, int], list[RecordBatch]] = {}
        for _, sent in sorted(self._sent.items()):
            own: dict[tuple[str, int], list[RecordBatch]] = {}
            for topic, partition, batch, _ in sent:
                own.setdefault((topic, partition), []).append(batch)
            for place, parts in own.items():
                lanes.setdefault(place, []).append(RecordBatch.concat(parts))
        self._sent.clear()
        self._ready += [PartitionBatch(*place, _merged(parts)) for place, parts in lanes.items()]

    def _are_live(self, wall: int) -> bool:
        tasks = (task for task in self._together() if task.arrived.all_records)
        return all(head >= wall - self._skew_ms for task in tasks for head in task.arrived.heads().values())

    def _begin(self, ends: Mapping[TopicPartition, int], now: int, wall: int) -> None:
        """Begin a round if there is history, and all that may be older has arrived."""
        heads = {task.id: task.arrived.heads() for task in self._together()}
        counted = {p: at for each in heads.values() for p, at in each.items() if not self._is_silent(p, now)}
        oldest_new = wall - self._skew_ms
        are_old = bool(counted) and min(counted.values()) < oldest_new
        awaited = [
            task
            for task in self._together()
            for partition in task.partitions - heads[task.id].keys()
            if self._is_awaited(task, partition, ends, now, task.times.get(partition, oldest_new - 1) >= oldest_new)
        ]
        # What is new does not wait for the restore of another task.
        has_to_wait = any(are_old or task.is_open for task in awaited)
        self.is_blocked = has_to_wait and bool(counted) and len(self.tasks) > 1
        self.is_in_history = are_old or bool(awaited)
        self._is_live = not self.is_in_history and all(task.is_open for task in self._together())
        if self.is_blocked or not are_old or len(self.tasks) < 2:
            return
        until = wall
        for task in self._together():
            most = max(1, task.time.most_records * _MANY_TASKS // max(_MANY_TASKS, len(self.tasks)))
            for partition in heads[task.id].keys() & counted.keys():
                if task.records(partition) > most or _lags(task, partition, ends):
                    until = min(until, max(counted[partition], task.arrived.time_of(partition, most)))
        self._until, self._began = until, now

    def _is_silent(self, partition: TopicPartition, now: int) -> bool:
        since = self._silent.get(partition)
        return since is not None and now - since >= MOST_SILENT_MS

    def _is_awaited(
        self, task: ActiveTask, partition: TopicPartition, ends: Mapping[TopicPartition, int], now: int, is_new: bool
    ) -> bool:
        """Return whether records of a partition of which none waits may be older than those of others. is_new: whether
        its last record was no history."""
        if is_new or not _lags(task, partition, ends):
            self._silent.pop(partition, None)
            return False
        self._silent.setdefault(partition, now)
        return not self._is_silent(partition, now)


def _lags(task: ActiveTask, partition: TopicPartition, ends: Mapping[TopicPartition, int]) -> bool:
    """Return whether there may be more records of a partition than have arrived."""
    return not task.is_open or partition not in ends or task.positions.get(partition, 0) < ends[partition]


def _merged(lanes: Sequence[RecordBatch]) -> RecordBatch:
    """Return the records of some tasks by time; those of one task keep their order."""
    if len(lanes) == 1:
        return lanes[0]
    times = np.concatenate([running_maximum(lane.timestamps) for lane in lanes])
    merged = RecordBatch.concat(lanes)
    return merged.take(np.argsort(times, kind="stable")) if (times[1:] < times[:-1]).any() else merged


class TimeAlignment:
    """The rounds of all sub-topologies of an instance."""

    def __init__(
        self, feeding: Mapping[int, frozenset[str]], awaited: Mapping[int, frozenset[str]], skew_ms: int
    ) -> None:
        """Begin without tasks. feeding, awaited: see `feeding_topics` and `awaited_topics`."""
        self._rounds = {id: TimeRounds(topics, skew_ms) for id, topics in feeding.items()}
        self._awaited = awaited
        self.ahead_ms = 0
        """How much the clock of the records, the wall clock, is ahead of that of the core."""

    def add(self, task: ActiveTask) -> None:
        """Take a task of the instance."""
        rounds = self._rounds.get(task.id.subtopology)
        if rounds is not None:
            rounds.tasks[task.id] = task
            rounds.change()

    def remove(self, id: TaskId) -> None:
        """Take that the instance has a task no more."""
        rounds = self._rounds.get(id.subtopology)
        if rounds is not None:
            del rounds.tasks[id]
            rounds.change()

    def look(self, ends: Mapping[TopicPartition, int], now: int) -> None:
        """End rounds and begin others, with what has arrived by now."""
        for rounds in self._rounds.values():
            rounds.look(ends, now, now + self.ahead_ms)

    def topics_behind(self, now: int) -> frozenset[str]:
        """Return the repartition topics in which history is still to arrive: tasks that read others too wait for it."""
        behind: set[str] = set()
        for id, rounds in self._rounds.items():
            if rounds.is_behind(now) or any(not behind.isdisjoint(task.topics) for task in rounds.tasks.values()):
                behind |= self._awaited.get(id, frozenset())
        return frozenset(behind)

    def topics_on_the_way(self, now: int) -> frozenset[str]:
        """Return the repartition topics that have all of history when a commit is made."""
        each = (self._awaited.get(id, frozenset()) for id, rounds in self._rounds.items() if rounds.is_on_the_way(now))
        return frozenset[str]().union(*each)

    def written(self) -> None:
        """Take that a commit is made: all that was sent can be read."""
        for rounds in self._rounds.values():
            rounds.written()

    def admitted(self, ready: list[ActiveTask], now: int) -> list[ActiveTask]:
        """Return the tasks that may run now, of those that have something to do."""
        return [task for task in ready if self._may_run(task, now)] if self._rounds else ready

    def _may_run(self, task: ActiveTask, now: int) -> bool:
        share = self.share(task)
        return share is None or any(share.values()) or task.has_more_than_records(now)

    def share(self, task: ActiveTask) -> dict[TopicPartition, int] | None:
        """Return how many records of each partition a task may take now, None for any number."""
        rounds = self._rounds.get(task.id.subtopology)
        return None if rounds is None else rounds.share(task)

    def sends(self, task: TaskId, output: Sequence[PartitionBatch]) -> Sequence[PartitionBatch]:
        """Return what goes on at once of what a task has sent in a run."""
        rounds = self._rounds.get(task.subtopology)
        return output if rounds is None else rounds.sends(task, output)

    def released(self) -> list[tuple[TaskId, list[PartitionBatch]]]:
        """Return what goes on now, since rounds are over, with the first task of the sub-topology that has sent it."""
        return [(TaskId(id, 0), output) for id, each in self._rounds.items() if (output := each.released())]

    def release(self) -> list[tuple[TaskId, list[PartitionBatch]]]:
        """End all rounds; return what goes on, as `released`."""
        return [(TaskId(id, 0), output) for id, each in self._rounds.items() if (output := each.release())]

    def forget(self) -> None:
        """Forget what tasks have sent, for it is made again."""
        for rounds in self._rounds.values():
            rounds.forget()

    def is_going_on(self, now: int) -> bool:
        """Return whether a commit waits for the end of a round."""
        return any(rounds.is_going_on(now) for rounds in self._rounds.values())

    def waits(self) -> bool:
        """Return whether tasks wait for records that have not arrived."""
        return any(rounds.is_blocked for rounds in self._rounds.values())

    def next_due_ms(self) -> int | None:
        """Return when something changes though no event comes (ms)."""
        times = (rounds.next_due_ms() for rounds in self._rounds.values())
        return min((time for time in times if time is not None), default=None)


def alignment_of(layout: Layout) -> TimeAlignment:
    """Return the alignment of the tasks of an application."""
    feeding = feeding_topics(layout.topology, layout.config)
    return TimeAlignment(feeding, awaited_topics(layout.topology, feeding), layout.config["penstock.max.skew.ms"])
