"""The observations of an application as plain data, for JSON and for the pages.

Times are in ms, since the epoch if they end with `_at_ms`. Nothing here asks a broker, unless it says so; observations
are a few seconds old.
"""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import orjson

import penstock
from penstock.application.comparison import Compare
from penstock.application.running_topology import RunningTopology
from penstock.application.store_entries import EntrySelection, StoreEntries, plain
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, StreamsStoppedError, UnsupportedOperationError
from penstock.exception_handlers import DEAD_LETTER_QUEUE_TOPIC
from penstock.host.api import CommitFigures, HostStatistics, Staleness, State, StoreSize
from penstock.metrics import Metric, MetricName
from penstock.metrics.drop_reasons import PASSED
from penstock.metrics.host_metrics import STREAM_TIME
from penstock.notebook import xml_text
from penstock.record import FailedRecord
from penstock.tools.transfers.redrive import DeadLetter, KeptLetter, RedriveOptions, inspect_letters
from penstock.tools.ui import schema
from penstock.tools.ui.formatting import LONGEST
from penstock.tools.ui.observer import INTERVAL_MS, Look, Observer, behind_ms
from penstock.tools.ui.parameters import Parameters, choice, number
from penstock.tools.ui.topologies import TASK_ID, Answer, Topologies, store_users
from penstock.tools.ui.waiting import Waiting

_OLD_MS: Final = 10 * INTERVAL_MS
"""An older observation says nothing about the present: a broker does not answer, or the machine was suspended."""
UNKNOWN_FILE: Final = (
    "The application does not know the file of its program, because `penstock run` has not started it. Compare two "
    "versions of the program with `penstock diff OLD NEW`, or on Spark one with the checkpoint: `penstock diff FILE`."
)
KEPT_LETTERS: Final = 50
"""Number of last dead letters that are shown."""
_TOPIC_NAME: Final = re.compile("[a-zA-Z0-9._-]+")
_MOST_HEADERS: Final = 100
_LONGEST_TRACE: Final = 10_000
"""Characters shown from the end of a stack trace."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of JSON of entries in one answer; the last entry may exceed it."""


@dataclass(frozen=True)
class Answers:
    """Answers for one application.

    Args:
        observer: observes the application.
        config: its configuration.
        compare: returns the changes of its program; None if the file of the program is not known.
    """

    observer: Observer
    config: StreamsConfig
    compare: Compare | None = None
    _reading_letters: threading.Lock = field(default_factory=threading.Lock, init=False)

    @cached_property
    def topologies(self) -> Topologies:
        """The topologies, their sub-topologies and nodes."""
        return Topologies(self.observer, self.config)

    @cached_property
    def waiting(self) -> Waiting:
        """The records that wait for the answers of calls, or for another attempt."""
        return Waiting(self.observer, self.config, self.topologies)

    # ---------------------------------------- its activity

    def overview(self) -> schema.OverviewAnswer:
        """Return the application's state, rates, lag, and last commits."""
        application, look, rates = self.observer.application, self.observer.newest, self.observer.rates()
        error, state = application.error(), self._state()
        errors, _ = application.uncaught_errors()
        falls = -rates.lag if rates.lag is not None else 0
        return {
            "application_id": self.config.required("application.id"),
            "version": penstock.__version__,
            "host": self.config["penstock.host"],
            "state": _name(state),
            "state_since_ms": None if self._is_watched else application.state_since_ms(),
            "paused": application.is_paused(),
            "paused_since_ms": application.paused_since_ms(),
            "watched": self._is_watched,
            "unseen": look.unseen,
            "members": None if look.unseen is None else sum(len(group.members) for group in self._groups(look)),
            "error": None if error is None else str(error),
            "errors": None if self._is_watched else errors,
            "uptime_ms": self.observer.uptime_ms,
            "seen_at_ms": look.time_ms,
            "records_in": look.statistics.records_in,
            "records_out": look.statistics.records_out if look.unseen is None else None,
            "records_in_per_second": rates.records_in,
            "records_out_per_second": rates.records_out if look.unseen is None else None,
            "records_processed_per_second": rates.processed,
            "records_dropped": self._records_dropped(look),
            "dropped": self.topologies.dropped(),
            "lag": look.lag,
            "lag_per_second": rates.lag,
            "behind_ms": behind_ms(look.lag, rates.processed),
            "behind_since_ms": self.observer.behind_since_ms,
            "catch_up_ms": round(1000 * look.lag / falls) if look.lag and falls > 0 else None,
            "output_age_ms": self.observer.output_age(),
            "stream_time": self._stream_time(),
            "topologies": [
                {
                    "name": name,
                    "state": _name(self._state_of(look, name, topology)),
                    "lag": None if name not in look.topologies else look.topologies[name].lag,
                    "commit": self._commit(look, name),
                    "problem": None if name not in look.topologies else look.topologies[name].problem,
                }
                for name, topology in application.running_topologies().items()
            ],
        }

    @property
    def _is_watched(self) -> bool:
        """Whether the application is only watched: other processes run it, if any."""
        return self.observer.newest.statistics.watched is not None

    def _state(self) -> State | None:
        """Return the state of the application.

        For a watched application, this is the observed state; None if the observations are insufficient or too old.
        """
        watched = self.observer.newest.statistics.watched
        if watched is None:
            return self.observer.application.state()
        return None if self.observer.age_ms > _OLD_MS else watched.state

    def _state_of(self, look: Look, name: str, topology: RunningTopology) -> State | None:
        if not self._is_watched:
            return topology.state()
        watched = look.statistics_of(name).watched
        return None if watched is None else watched.state

    def _records_dropped(self, look: Look) -> int | None:
        """Return the number of records dropped since the start; None if unknown."""
        if look.unseen is not None:
            return None
        names = self.observer.application.running_topologies()
        return sum(sum(look.statistics_of(name).dropped.values()) for name in names)

    def _commit(self, look: Look, topology: str) -> schema.CommitAnswer | None:
        """Return the last commit of a topology: its number, its time, and its age."""
        seen = look.topologies.get(topology)
        return None if seen is None or seen.committed is None else _commit(seen.committed, self.observer.age_ms)

    def _stream_time(self) -> schema.StreamTimeAnswer | None:
        """Return the smallest and largest stream time of the tasks, and their skew.

        None if no task has processed a record since the start.
        """
        times = self._stream_times().values()
        if not times:
            return None
        return {"min_at_ms": min(times), "max_at_ms": max(times), "skew_ms": max(times) - min(times)}

    def _stream_times(self) -> Mapping[tuple[str, str], int]:
        """Return the stream time (ms since the epoch) of tasks by topology and task.

        Tasks that have left this program are omitted.
        """
        here = {
            (name, str(task.task_id))
            for name, seen in self.observer.newest.topologies.items()
            for task in seen.tasks or ()
        }
        found = {
            (topology, name.tags[TASK_ID]): int(metric.metric_value)
            for topology, metrics in self.observer.metrics().items()
            for name, metric in metrics.items()
            if name.name == STREAM_TIME
        }
        return {task: time for task, time in found.items() if not here or task in here}

    def history(self, parameters: Parameters) -> Answer:
        """Return the observations over time, in columns.

        Args:
            parameters: `range`, the name of a range; `after`, only points later than this (ms since the epoch).

        Raises:
            WrongParameterError: there is no such range, or `after` is not a time.
        """
        ranges = self.observer.history.ranges
        chosen = choice(parameters, "range", ranges)
        columns = self.observer.history.columns(chosen, number(parameters, "after"))
        return {"seen_at_ms": self.observer.newest.time_ms, "range": chosen, **columns}

    def errors(self) -> schema.ErrorsAnswer:
        """Return the errors that stopped all tasks, and the records that handlers let pass.

        The errors are the number since the start, None if another process runs the tasks, and the last ones, newest
        first.
        """
        count, last = self.observer.application.uncaught_errors()
        shown: list[schema.UncaughtErrorAnswer] = [
            {
                "seen_at_ms": each.time_ms,
                "error": xml_text(each.error),
                "traceback": xml_text(each.traceback),
                "response": each.response.value,
                "record": _failed_record(each.record),
            }
            for each in reversed(last)
        ]
        is_seen = self.observer.newest.unseen is None
        passed = [each for each in self.topologies.dropped() if each["reason"] in PASSED] if is_seen else None
        return {"count": None if self._is_watched else count, "errors": shown, "passed": passed}

    @property
    def dead_letter_topic(self) -> str | None:
        """The topic of the built-in handlers' dead letters; None if they write no dead letters."""
        topic: str | None = self.config[DEAD_LETTER_QUEUE_TOPIC]
        return topic

    def dead_letters(self) -> schema.DeadLettersAnswer:
        """Return the dead letters to redrive, and the last records of their topic.

        The former are by origin and class of errors. Asks the brokers.

        Raises:
            UnsupportedOperationError: the handlers write no dead letters.
            StreamsError: another request reads them now; or see `inspect_letters`.
        """
        if self.dead_letter_topic is None:
            raise UnsupportedOperationError(f"There are no dead letters: {DEAD_LETTER_QUEUE_TOPIC} is not set.")
        if not self._reading_letters.acquire(blocking=False):
            raise StreamsError("The dead letters are being read for another request: ask again in a few seconds.")
        try:
            options = RedriveOptions(skip_invalid=True)
            planned, last = inspect_letters(self.config, self.dead_letter_topic, options, KEPT_LETTERS)
        finally:
            self._reading_letters.release()
        skips_invalid = planned.invalid > 0
        letters = [
            replace(each, exception=xml_text(each.exception), message=xml_text(each.message))
            for each in planned.letters
        ]
        return {
            "topic": planned.dead_letter_topic,
            "records": planned.records,
            "without_source": planned.without_source,
            "invalid": planned.invalid,
            "letters": letters,
            "command": self.redrive_command(skips_invalid),
            "last": [self._kept(each, skips_invalid) for each in last],
        }

    def redrive_command(self, skips_invalid: bool = False, letter: DeadLetter | None = None) -> str:
        """Return the command that redrives the dead letters, or one of them.

        Args:
            skips_invalid: whether the command skips records that are not dead letters.
            letter: a single dead letter to redrive; its source must be a valid one.
        """
        topic, options = str(self.dead_letter_topic), []
        if letter is not None:
            source = {"source-topic": letter.topic, "partition": letter.partition, "offset": letter.offset}
            options += [f"--{name}={value}" for name, value in source.items()]
        if skips_invalid:
            options.append("--skip-invalid")
        options += ["--config", f"bootstrap.servers={self.config['bootstrap.servers']}"]
        placed = [*options, "--", topic] if topic.startswith("-") else [topic, *options]
        return xml_text(shlex.join(["penstock", "redrive", *placed]))

    def _kept(self, kept: KeptLetter, skips_invalid: bool) -> schema.KeptLetterAnswer:
        """Return a record of the topic of dead letters, with short texts for users' data.

        skips_invalid: as for `redrive_command`.
        """
        record, letter = kept.record, kept.letter
        source: schema.SourceAnswer | None = None
        if letter is not None and letter.topic is not None:
            source = {"topic": xml_text(letter.topic), "partition": letter.partition, "offset": letter.offset}
        has_place = letter is not None and _has_place(letter)
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _bytes_text(record.key),
            "value": _bytes_text(record.value),
            "headers": [[xml_text(name), _bytes_text(value)] for name, value in record.headers[:_MOST_HEADERS]],
            "redriven": kept.is_redriven,
            "source": source,
            "exception": None if letter is None else xml_text(letter.exception),
            "message": None if letter is None else xml_text(letter.message[:LONGEST]),
            "stacktrace": None if letter is None else xml_text(letter.stacktrace[-_LONGEST_TRACE:]),
            "command": self.redrive_command(skips_invalid, letter) if has_place else None,
        }

    # ---------------------------------------- its topologies

    def tasks(self) -> schema.TasksAnswer:
        """Return the tasks of this program, with their figures and partitions."""
        look, times = self.observer.newest, self._stream_times()
        found: list[schema.TaskAnswer] = []
        for name, seen in look.topologies.items():
            figures = look.statistics_of(name)
            for task in seen.tasks or ():
                id = str(task.task_id)
                partitions: list[schema.PartitionAnswer] = [
                    {
                        "topic": each.topic,
                        "partition": each.partition,
                        "committed_offset": task.committed_offsets[each],
                        "end_offset": task.end_offsets[each],
                        "lag": task.lag_of(each),
                    }
                    for each in sorted(task.topic_partitions)
                ]
                found.append(
                    {
                        "topology": name,
                        "task": id,
                        "worker": figures.workers.get(id),
                        "waits_for": [
                            {"topic": each.topic, "partition": each.partition} for each in figures.awaited.get(id, ())
                        ],
                        "processed": figures.processed.get(id, 0) if look.unseen is None else None,
                        "dropped": figures.dropped.get(id, 0) if look.unseen is None else None,
                        "stream_time_at_ms": times.get((name, id)),
                        "lag": task.lag,
                        "partitions": partitions,
                    }
                )
        return {
            "seen_at_ms": look.time_ms,
            "tasks": found,
            "groups": self._groups(look),
            "standby_tasks": _names(look, lambda figures: figures.standbys),
            "restoring_tasks": _names(look, lambda figures: figures.restoring),
            "problems": [seen.problem for seen in look.topologies.values() if seen.problem],
        }

    def _groups(self, look: Look) -> list[schema.GroupAnswer]:
        """Return the groups of a watched application, with their members."""
        watched = {name: look.statistics_of(name).watched for name in look.topologies}
        return [
            schema.GroupAnswer(topology=name, **vars(each.group))
            for name, each in watched.items()
            if each is not None and each.group is not None
        ]

    def commits(self) -> schema.CommitsAnswer:
        """Return the last commits of each topology, newest last, with the duration of each phase."""
        look = self.observer.newest
        found: list[schema.TopologyCommitsAnswer] = [
            {"name": name, "commits": [_commit_answer(each) for each in look.statistics_of(name).recent_commits]}
            for name in self.observer.application.running_topologies()
        ]
        return {"seen_at_ms": look.time_ms, "topologies": found}

    def changes(self) -> schema.ChangesAnswer:
        """Return the changes that a start of the program would make now.

        Raises:
            UnsupportedOperationError: the file of the program is not known.
            StreamsError: it cannot be loaded or compared.
        """
        if self.compare is None:
            raise UnsupportedOperationError(UNKNOWN_FILE)
        compared = self.compare()
        return {"compared": xml_text(compared.what), "changes": [xml_text(line) for line in compared.lines]}

    def stores(self) -> schema.StoresAnswer:
        """Return the stores of the topologies: kinds, sizes, and processors."""
        found: list[schema.StoreAnswer] = []
        sizes = self.observer.store_sizes()
        for name, topology in self.observer.application.running_topologies().items():
            users, in_bytes = store_users(topology.describe()), self.topologies.store_bytes(name)
            for store, builder in sorted(topology.state_stores().items()):
                size = sizes.get(name, {}).get(store, StoreSize())
                found.append(
                    {
                        "topology": name,
                        "store": store,
                        "kind": builder.kind,
                        "entries": size.entries,
                        "bytes": in_bytes.get(store),
                        "segments": size.segments,
                        "segment_bytes": size.segment_bytes,
                        "processors": users.get(store, []),
                    }
                )
        return {"stores": found}

    def metrics(self) -> Mapping[MetricName, Metric]:
        """Return the current metrics of all topologies, by their names."""
        topologies = self.observer.application.running_topologies().values()
        return {name: metric for topology in topologies for name, metric in topology.metrics().items()}

    def entries(self, store: str, topology: str | None, chosen: EntrySelection, limit: int) -> Answer:
        """Return entries of a store, and the commit of which they are.

        Args:
            store: name of the store.
            topology: the topology of the store; None for the first.
            chosen: the selection of entries.
            limit: the most entries; an answer also ends at MOST_BYTES.

        Raises:
            StreamsStoppedError: the application neither runs nor rebalances.
            StreamsError: see `StoreEntries.of`.
        """
        name, running = self.topologies.named(topology)
        state = running.state()
        if state not in (State.RUNNING, State.REBALANCING):
            raise StreamsStoppedError(f"The stores cannot be read: the state is {state.value}.")
        staleness = running.staleness()
        shown: list[Answer] = []
        size, more = 0, False
        with closing(StoreEntries(running, running.state_stores(), self.config).of(store, chosen)) as found:
            for entry in found:
                if len(shown) == limit or size > MOST_BYTES:
                    more = True
                    break
                readable = {field: _readable(value) for field, value in entry.items()}
                size += len(orjson.dumps(readable))
                shown.append(readable)
        return {"topology": name, "store": store, "commit": _commit(staleness), "entries": shown, "more": more}

    # ---------------------------------------- health

    def is_live(self) -> tuple[bool, schema.LiveAnswer]:
        """Return whether the application has not ended with an error.

        The answer has its state, and the reasons why it is not live. A watched application is live while it is observed
        to run.
        """
        state = self._state()
        reasons = list(self._unseen(state))
        if state in (State.PENDING_ERROR, State.ERROR):
            reasons.append(f"The state is {state.value}.")
        return not reasons, {"state": _name(state), "reasons": reasons}

    def is_ready(self, max_lag: int | None, max_commit_age_ms: int | None) -> tuple[bool, schema.ReadyAnswer]:
        """Return whether the application runs and keeps up, and why not.

        Args:
            max_lag: the largest lag (offsets) of all tasks together; None for any.
            max_commit_age_ms: the largest age of the last commit of a topology with a lag; None for any.
        """
        state, look = self._state(), self.observer.newest
        reasons = list(self._unseen(state))
        if state is not None and state is not State.RUNNING:
            reasons.append(f"The state is {state.value}.")
        if max_lag is not None or max_commit_age_ms is not None:
            reasons += self._unknown(look)
        if max_lag is not None and look.lag is not None and look.lag > max_lag:
            reasons.append(f"The lag is {look.lag}, more than {max_lag}.")
        if max_commit_age_ms is not None:
            reasons += self._old_commits(look, max_commit_age_ms)
        return not reasons, {"state": _name(state), "lag": look.lag, "reasons": reasons}

    def _old_commits(self, look: Look, max_age_ms: int) -> Iterable[str]:
        """Yield a reason for each topology with a lag and without a recent commit.

        A commit is recent within `max_age_ms`. Before its first commit, a topology is as old as the application.
        """
        behind = [name for name, seen in look.topologies.items() if seen.lag]
        if look.unseen is not None:
            if behind:
                yield "The age of the last commit cannot be seen from outside."
            return
        for name in behind:
            age_ms = (self._commit(look, name) or {"age_ms": self.observer.uptime_ms})["age_ms"]
            if age_ms > max_age_ms:
                of = f" of {name}" if name else ""
                yield f"The last commit{of} is {age_ms} ms old, more than {max_age_ms} ms."

    def _unseen(self, state: State | None) -> Iterable[str]:
        """Yield the reason if, by the observed `state`, no other process runs the application."""
        if self._is_watched and state not in (State.RUNNING, State.REBALANCING):
            what = "cannot see whether another one runs it" if state is None else "no process runs it"
            yield f"This process only watches the application, and {what}."

    def _unknown(self, look: Look) -> Iterable[str]:
        """Yield the reasons why the progress of the application is unknown."""
        if not look.topologies:
            yield "The lag is not known yet."
        elif self.observer.age_ms > _OLD_MS:
            yield f"The lag is not known: the last look was {self.observer.age_ms} ms ago; brokers do not answer."
        for seen in look.topologies.values():
            if seen.problem is not None:
                yield f"The lag is not known: {seen.problem}"


def _has_place(letter: DeadLetter) -> bool:
    """Return whether the headers of a dead letter name a valid place in Kafka.

    Anyone can write such headers.
    """
    is_name = letter.topic is not None and _TOPIC_NAME.fullmatch(letter.topic) is not None
    return is_name and letter.partition >= 0 and letter.offset >= 0


def _bytes_text(data: bytes | None) -> str | None:
    """Return the beginning of some bytes of a record as text; None for None."""
    if data is None:
        return None
    text = xml_text(data[: 4 * LONGEST].decode(errors="replace"))
    return text if len(data) <= LONGEST else f"{text[:LONGEST]}... ({len(data):,} bytes)"


def _commit(of: Staleness, seen_ms: int = 0) -> schema.CommitAnswer | None:
    """Return a commit, None before the first one. seen_ms: the time since its age was read."""
    if of.age_ms is None:
        return None
    return {"number": of.epoch, "made_at_ms": of.committed_ms, "age_ms": of.age_ms + seen_ms}


def _failed_record(record: FailedRecord | None) -> schema.FailedRecordAnswer | None:
    if record is None:
        return None
    node, topic, partition, offset, key, value = record
    return {"node": node, "topic": topic, "partition": partition, "offset": offset, "key": key, "value": value}


def _names(look: Look, by_task: Callable[[HostStatistics], Mapping[str, object] | None]) -> list[schema.TaskNameAnswer]:
    """Return the names of the tasks for which the host has a figure."""
    return [
        {"topology": name, "task": task}
        for name in look.topologies
        for task in sorted(by_task(look.statistics_of(name)) or ())
    ]


def _name(state: State | None) -> str | None:
    return None if state is None else state.value


def _readable(value: Any) -> Any:
    """Return a key or a value as JSON, otherwise as text."""
    try:
        return orjson.loads(orjson.dumps(value, default=plain, option=orjson.OPT_NON_STR_KEYS))
    except TypeError:
        return xml_text(repr(value))


def _commit_answer(figures: CommitFigures) -> schema.CommitFiguresAnswer:
    number, committed_at_ms, records, phases_ms = figures
    return {"number": number, "committed_at_ms": committed_at_ms, "records": records, "phases_ms": phases_ms}
