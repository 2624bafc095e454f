"""Aligns tasks that feed repartition topics in time: KIP-28's synchronised inputs, between tasks.

Records from such tasks meet in the tasks downstream of the repartition topic. If one of the tasks were far ahead in its
partition, the records of the others would arrive there late, and windows would drop them. So the tasks of one
sub-topology in this instance read history, records that are older than `penstock.max.skew.ms` by the clock, in rounds:
each task reads up to a common time, and when the last one has reached it, their output is sent on in order of time. A
round holds about one slice of time of each task, and ends before a commit. Newer records are processed as they arrive,
as in Kafka: with these, tasks are no further apart than that skew.

No task waits forever. A task waits up to `MOST_SILENT_MS` for a partition with no arrived records whose end is unknown
or not reached. Timestamps in the future count as the present. A round ends after `MOST_ROUND_MS`, even if a function
does not return or the instance pauses.

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
"""Most slices of time in a round: with more tasks, each reads less."""


def feeding_topics(topology: BuiltTopology, config: StreamsConfig) -> dict[int, frozenset[str]]:
    """Return the repartition topics fed by each sub-topology whose tasks read history together.

    Sub-topologies that read a topic by other times than those of its records are left out.
    """
    own_time = topics_with_own_time(topology, config)
    feeding = {
        spec.id: frozenset(n.topic for n in spec.nodes if isinstance(n, SinkSpec) and n.repartition and n.topic)
        for spec in topology.subtopologies
        if config["penstock.max.skew.ms"] > 0 and own_time.isdisjoint(spec.source_topics)
    }
    return {id: topics for id, topics in feeding.items() if topics}


def aligned_partitions(layout: Layout) -> frozenset[TopicPartition]:
    """Return the partitions of the tasks that read history together, whose ends must be known."""
    feeding = feeding_topics(layout.topology, layout.config)
    return frozenset(p for task, group in layout.groups.items() if task.subtopology in feeding for p in group)


def awaited_topics(topology: BuiltTopology, feeding: Mapping[int, frozenset[str]]) -> dict[int, frozenset[str]]:
    """Return the fed repartition topics that other tasks wait for.

    Topics whose records come back to the sending sub-topology are left out: it might wait for itself.
    """
    sent = {
        spec.id: frozenset(n.topic for n in spec.nodes if isinstance(n, SinkSpec) and n.repartition)
        for spec in topology.subtopologies
    }

    def behind(topics: frozenset[str | None], found: frozenset[int] = frozenset()) -> frozenset[int]:
        readers = {each.id for each in topology.subtopologies if not topics.isdisjoint(each.source_topics)} - found
        return found if not readers else behind(frozenset().union(*(sent[id] for id in readers)), found | readers)

    return {id: frozenset(t for t in topics if id not in behind(frozenset([t]))) for id, topics in feeding.items()}


class TimeRounds:
    """The rounds of the tasks of one sub-topology.

    Args:
        topics: the repartition topics that the tasks feed.
        skew_ms: the least age of history.
    """

    def __init__(self, topics: frozenset[str], skew_ms: int) -> None:
        self.is_in_history = True
        """Whether tasks read history, or may have to."""
        self._sent_ms: int | None = None
        """The time of the last output from history (ms), None after a commit."""
        self.tasks: dict[TaskId, ActiveTask] = {}
        self._topics = topics
        self._skew_ms = skew_ms
        self._until: int | None = None
        """The time up to which the tasks read in this round (ms); None without one."""
        self._began = 0
        self.is_blocked = False
        """Whether no round can begin, because possibly older records have not arrived yet."""
        self._is_live = False
        """Whether all tasks had no history left at the last look."""
        self._looked_ms = 0
        self._silent: dict[TopicPartition, int] = {}
        """The start of the wait for each partition without progress (ms)."""
        self._sent: dict[TaskId, list[PartitionBatch]] = {}
        self._ready: list[PartitionBatch] = []

    def change(self) -> None:
        """Note that the set of tasks has changed."""
        self._is_live = False

    def forget(self) -> None:
        """Forget the round and its output, because all tasks begin again and repeat it."""
        self._until, self.is_blocked, self._is_live = None, False, False
        self.is_in_history, self._sent_ms = True, None
        self._silent.clear()
        self._sent.clear()
        self._ready.clear()

    def look(self, ends: Mapping[TopicPartition, int], now: int, wall: int) -> None:
        """End an overlong round, and begin one if there is history to read.

        Args:
            ends: the known end offsets of partitions.
            now: the time of the core's clock (ms).
            wall: the time of the wall clock, as in records (ms).
        """
        if self._until is not None and now - self._began >= MOST_ROUND_MS:
            stuck = [p for task in self._together() for p in self._left(task)]
            self._silent = {p: self._silent.get(p, self._began) for p in stuck}
            self._end()
        if self._until is None and not (self._is_live and self._are_live(wall)):
            self._begin(ends, now, wall)
        self._looked_ms = now

    def is_on_the_way(self, now: int) -> bool:
        """Return whether all history is read, and its results may not have arrived."""
        is_sent = self._sent_ms is not None and now - self._sent_ms < MOST_ROUND_MS
        return is_sent and not self.is_in_history

    def is_behind(self, now: int) -> bool:
        """Return whether history is still to arrive in the repartition topics."""
        return self.is_in_history or self.is_on_the_way(now)

    def written(self) -> None:
        """Note that all output sent so far can be read."""
        if self._until is None:
            self._sent_ms = None

    def share(self, task: ActiveTask) -> dict[TopicPartition, int] | None:
        """Return the most records per partition for a task now, or None without a limit."""
        if self._until is None:
            return self._with_answers(task, dict.fromkeys(task.inputs, 0)) if self.is_blocked else None
        until = {partition: task.arrived.records_until(partition, self._until) for partition in task.inputs}
        return self._with_answers(task, until)

    def _with_answers(self, task: ActiveTask, share: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return a share with all answers, whose records have been read already."""
        return {**share, **{partition: task.arrived.records[partition] for partition in task.answers}}

    def sends(self, task: TaskId, output: Sequence[PartitionBatch]) -> Sequence[PartitionBatch]:
        """Return the output of a task to send now; the rest awaits the round's end."""
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
        """Return the kept output of ended rounds."""
        ready, self._ready = self._ready, []
        return ready

    def release(self) -> list[PartitionBatch]:
        """End the round and return its kept output."""
        self._end()
        return self.released()

    @property
    def ends_by_ms(self) -> int | None:
        """The latest end of the round (ms), None without one."""
        return None if self._until is None else self._began + MOST_ROUND_MS

    def next_due_ms(self) -> int | None:
        """Return the time of the next change without an event (ms)."""
        if self._until is not None:
            return self.ends_by_ms
        if self.is_blocked or self.is_in_history:
            return min((since + MOST_SILENT_MS for since in self._silent.values()), default=None)
        return None if self._sent_ms is None else self._sent_ms + MOST_ROUND_MS

    def _together(self) -> list[ActiveTask]:
        """Return the tasks that read together, without those whose function does not return."""
        return [task for task in self.tasks.values() if not task.is_aside]

    def _left(self, task: ActiveTask) -> list[TopicPartition]:
        """Return the partitions of a task with records left in the round."""
        assert self._until is not None
        return [p for p, head in task.heads().items() if task.is_out or head <= self._until] or (
            list(task.inputs) if task.is_out else []
        )

    def _end(self) -> None:
        """End the round, and release its kept output in order of time.

        Among equal times, records of the first task go first.
        """
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
        return all(head >= wall - self._skew_ms for task in tasks for head in task.heads().values())

    def _begin(self, ends: Mapping[TopicPartition, int], now: int, wall: int) -> None:
        """Begin a round if there is history, and all possibly older records have arrived."""
        heads = {task.id: task.heads() for task in self._together()}
        counted = {p: at for each in heads.values() for p, at in each.items() if not self._is_silent(p, now)}
        oldest_new = wall - self._skew_ms
        are_old = bool(counted) and min(counted.values()) < oldest_new
        awaited = [
            task
            for task in self._together()
            for partition in task.inputs - heads[task.id].keys()
            if self._is_awaited(task, partition, ends, now, task.times.get(partition, oldest_new - 1) >= oldest_new)
        ]
        # New records do not wait for the restore of another task.
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
        """Return whether a partition without waiting records may get older records than those of others.

        Args:
            task: the task that reads the partition.
            partition: the partition.
            ends: the known end offsets of partitions.
            now: the time of the core's clock (ms).
            is_new: whether its last record was not history.
        """
        if is_new or not _lags(task, partition, ends):
            self._silent.pop(partition, None)
            return False
        self._silent.setdefault(partition, now)
        return not self._is_silent(partition, now)


def _lags(task: ActiveTask, partition: TopicPartition, ends: Mapping[TopicPartition, int]) -> bool:
    """Return whether a partition may have more records than have arrived."""
    return not task.is_open or partition not in ends or task.positions.get(partition, 0) < ends[partition]


def _merged(lanes: Sequence[RecordBatch]) -> RecordBatch:
    """Return the records of several tasks in order of time, keeping each task's order."""
    if len(lanes) == 1:
        return lanes[0]
    times = np.concatenate([running_maximum(lane.timestamps) for lane in lanes])
    merged = RecordBatch.concat(lanes)
    return merged.take(np.argsort(times, kind="stable")) if (times[1:] < times[:-1]).any() else merged


class TimeAlignment:
    """The rounds of all sub-topologies of an instance.

    Args:
        feeding: see `feeding_topics`.
        awaited: see `awaited_topics`.
        skew_ms: the least age of history.
    """

    def __init__(
        self, feeding: Mapping[int, frozenset[str]], awaited: Mapping[int, frozenset[str]], skew_ms: int
    ) -> None:
        self._rounds = {id: TimeRounds(topics, skew_ms) for id, topics in feeding.items()}
        self._awaited = awaited
        self.ahead_ms = 0
        """The lead of the wall clock, which records use, over the clock of the core."""

    def add(self, task: ActiveTask) -> None:
        """Add a task of the instance."""
        rounds = self._rounds.get(task.id.subtopology)
        if rounds is not None:
            rounds.tasks[task.id] = task
            rounds.change()

    def remove(self, id: TaskId) -> None:
        """Remove a task of the instance."""
        rounds = self._rounds.get(id.subtopology)
        if rounds is not None:
            del rounds.tasks[id]
            rounds.change()

    @property
    def is_used(self) -> bool:
        """Whether any tasks read history together."""
        return bool(self._rounds)

    def look(self, ends: Mapping[TopicPartition, int], now: int) -> None:
        """End rounds and begin others, given the records that have arrived."""
        for rounds in self._rounds.values():
            rounds.look(ends, now, now + self.ahead_ms)

    def topics_behind(self, now: int) -> frozenset[str]:
        """Return the repartition topics that still await history, also indirectly through other such topics."""
        behind: set[str] = set()
        for id, rounds in self._rounds.items():
            if rounds.is_behind(now) or any(not behind.isdisjoint(task.topics) for task in rounds.tasks.values()):
                behind |= self._awaited.get(id, frozenset())
        return frozenset(behind)

    def topics_on_the_way(self, now: int) -> frozenset[str]:
        """Return the repartition topics that will have all of history after a commit."""
        each = (self._awaited.get(id, frozenset()) for id, rounds in self._rounds.items() if rounds.is_on_the_way(now))
        return frozenset[str]().union(*each)

    def written(self) -> None:
        """Note a commit: all output sent so far can be read."""
        for rounds in self._rounds.values():
            rounds.written()

    def admitted(self, ready: list[ActiveTask], now: int) -> list[ActiveTask]:
        """Return the tasks that may run now, out of those with work."""
        return [task for task in ready if self._may_run(task, now)] if self._rounds else ready

    def _may_run(self, task: ActiveTask, now: int) -> bool:
        share = self.share(task)
        return share is None or any(share.values()) or task.has_more_than_records(now)

    def share(self, task: ActiveTask) -> dict[TopicPartition, int] | None:
        """Return the most records per partition for a task now, or None without a limit."""
        rounds = self._rounds.get(task.id.subtopology)
        return None if rounds is None else rounds.share(task)

    def sends(self, task: TaskId, output: Sequence[PartitionBatch]) -> Sequence[PartitionBatch]:
        """Return the output of a task's run to send at once."""
        rounds = self._rounds.get(task.subtopology)
        return output if rounds is None else rounds.sends(task, output)

    def released(self) -> list[tuple[TaskId, list[PartitionBatch]]]:
        """Return the kept output of ended rounds, with the first task of the sending sub-topology."""
        if not self._rounds:
            return []
        return [(TaskId(id, 0), output) for id, each in self._rounds.items() if (output := each.released())]

    def release(self) -> list[tuple[TaskId, list[PartitionBatch]]]:
        """End all rounds; return their output, as `released`."""
        return [(TaskId(id, 0), output) for id, each in self._rounds.items() if (output := each.release())]

    def forget(self) -> None:
        """Forget the output of tasks, because it is repeated."""
        for rounds in self._rounds.values():
            rounds.forget()

    @property
    def ends_by_ms(self) -> int:
        """The latest end of all rounds (ms), for which a commit waits; 0 without a round."""
        if not self._rounds:
            return 0
        return max(rounds.ends_by_ms or 0 for rounds in self._rounds.values())

    def waits(self) -> bool:
        """Return whether tasks wait for records that have not arrived."""
        return any(rounds.is_blocked for rounds in self._rounds.values())

    def next_due_ms(self) -> int | None:
        """Return the time of the next change without an event (ms)."""
        if not self._rounds:
            return None
        times = (rounds.next_due_ms() for rounds in self._rounds.values())
        return min((time for time in times if time is not None), default=None)


def alignment_of(layout: Layout) -> TimeAlignment:
    """Return the alignment of the tasks of an application."""
    feeding = feeding_topics(layout.topology, layout.config)
    return TimeAlignment(feeding, awaited_topics(layout.topology, feeding), layout.config["penstock.max.skew.ms"])
