"""The types of the JSON answers, the source of docs/ui-api.md and `/api/v1/schema.json`.

The types of statistics that the answers contain unchanged are those of hosts. Tests compare answers with these types.
Times that end with `_at_ms` are in ms since the epoch; null is a figure that is unknown or not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, NotRequired, TypedDict

from msgspec import Meta

from penstock.host.api import GroupStatistics
from penstock.tools.transfers.redrive import RedrivenLetters
from penstock.tools.ui.observer import OutputAge
from penstock.tools.ui.parameters import DEFAULT_LIMIT, MOST_ENTRIES
from penstock.tools.ui.waiting_schema import TOPOLOGY as _TOPOLOGY
from penstock.tools.ui.waiting_schema import ParkedKeysAnswer, WaitingAnswer

# ---------------------------------------- the application


class CommitAnswer(TypedDict):
    """A commit of a topology."""

    number: Annotated[int, Meta(description="number of the commit, on Spark that of the epoch")]
    made_at_ms: Annotated[int, Meta(description="when it was made")]
    age_ms: Annotated[int, Meta(description="time since then")]


class StreamTimeAnswer(TypedDict):
    """The stream time of the tasks."""

    min_at_ms: Annotated[int, Meta(description="the smallest one of a task")]
    max_at_ms: Annotated[int, Meta(description="the largest one of a task")]
    skew_ms: Annotated[int, Meta(description="the difference")]


class DroppedAnswer(TypedDict):
    """Records that a node or store dropped."""

    topology: Annotated[str, Meta(description=_TOPOLOGY)]
    name: Annotated[str, Meta(description="name of the node or store")]
    records: Annotated[int, Meta(description="how many since the start")]
    reason: Annotated[str, Meta(description="the [reason](ui.md#dropped-records); the log names each record")]


class OverviewTopologyAnswer(TypedDict):
    """A topology, in short."""

    name: Annotated[str, Meta(description=_TOPOLOGY)]
    state: Annotated[str | None, Meta(description="its state; null if too little is seen of it")]
    lag: Annotated[int | None, Meta(description="records that its tasks have not committed yet")]
    commit: Annotated[CommitAnswer | None, Meta(description="the last commit; null before the first one")]
    problem: Annotated[str | None, Meta(description="what hides its lag")]


class OverviewAnswer(TypedDict):
    """The state of an application, its progress, and its figures since the start."""

    application_id: Annotated[str, Meta(description="`application.id`")]
    version: Annotated[str, Meta(description="the version of Penstock")]
    host: Annotated[str, Meta(description="`penstock.host`")]
    state: Annotated[
        str | None,
        Meta(
            description="the [state](life.md#states); if another process runs it, the state that is seen, or null if "
            "too little is seen"
        ),
    ]
    state_since_ms: Annotated[
        int | None,
        Meta(description="since when it is in this state, in ms since the epoch; null if another process runs it"),
    ]
    paused: Annotated[bool, Meta(description="whether it is paused")]
    paused_since_ms: Annotated[int | None, Meta(description="since when; null if it is not paused")]
    watched: Annotated[bool, Meta(description="whether another process runs it: `penstock ui FILE`")]
    unseen: Annotated[str | None, Meta(description="what cannot be seen from outside, on threads")]
    members: Annotated[int | None, Meta(description="members of its groups, if it is watched on threads")]
    error: Annotated[str | None, Meta(description="the error that ended it")]
    errors: Annotated[int | None, Meta(description="how many errors have stopped all tasks since the start")]
    uptime_ms: Annotated[int, Meta(description="time since the start")]
    seen_at_ms: Annotated[int, Meta(description="when the figures were read")]
    records_in: Annotated[int, Meta(description="records read since the start")]
    records_out: Annotated[int | None, Meta(description="records written since the start")]
    records_in_per_second: Annotated[
        float | None, Meta(description="over the last minute; null before the second look")
    ]
    records_out_per_second: Annotated[float | None, Meta(description="the same of the records written")]
    records_processed_per_second: Annotated[
        float | None, Meta(description="records of all tasks over the last minute, also from repartition topics")
    ]
    records_dropped: Annotated[int | None, Meta(description="records without a result since the start")]
    dropped: Annotated[list[DroppedAnswer], Meta(description="which nodes and stores have dropped them")]
    lag: Annotated[
        int | None,
        Meta(
            description="records that the tasks of this program have not committed yet, over all partitions; null if "
            "no broker answers"
        ),
    ]
    lag_per_second: Annotated[float | None, Meta(description="change of the lag over the last minute")]
    behind_ms: Annotated[
        int | None, Meta(description="how long the records that wait take at `records_processed_per_second`")
    ]
    behind_since_ms: Annotated[
        int | None,
        Meta(
            description="since when more records wait than the application processes in a minute, in ms since the "
            "epoch; null while it keeps up, and for the first minute"
        ),
    ]
    catch_up_ms: Annotated[
        int | None, Meta(description="time until the lag is 0 at `lag_per_second`; null if it does not fall")
    ]
    output_age_ms: Annotated[
        OutputAge | None,
        Meta(
            description="the age of output when its commit ended: the largest of all topologies, over the samples of "
            "the metrics; null if nothing was written"
        ),
    ]
    stream_time: Annotated[
        StreamTimeAnswer | None, Meta(description="the stream time of the tasks; null before the first record")
    ]
    topologies: Annotated[list[OverviewTopologyAnswer], Meta(description="the topologies")]


class HistoryAnswer(TypedDict):
    """Figures over time, as columns. Each index of the lists is one moment, the last is the newest."""

    range: Annotated[str, Meta(description="how far it goes back: `hour` or `day`")]
    interval_ms: Annotated[int, Meta(description="the least time between two points")]
    kept_ms: Annotated[int, Meta(description="how long a point is kept")]
    seen_at_ms: Annotated[int, Meta(description="when the application was looked at last")]
    times_ms: Annotated[list[int], Meta(description="the times of the points, in ms since the epoch")]
    records_in_per_second: Annotated[list[float | None], Meta(description="over the minute before each point")]
    records_out_per_second: Annotated[list[float | None], Meta(description="the same of the records written")]
    lag: Annotated[list[int | None], Meta(description="the largest lag since the point before")]
    output_age_p50_ms: Annotated[list[float | None], Meta(description="as `output_age_ms` of the overview")]
    output_age_p95_ms: Annotated[list[float | None], Meta(description="the same")]
    output_age_p99_ms: Annotated[list[float | None], Meta(description="the same")]


class FailedRecordAnswer(TypedDict):
    """The record on which a task failed."""

    node: Annotated[str, Meta(description="the node that failed")]
    topic: Annotated[str | None, Meta(description="the topic of the input record; null in a punctuator")]
    partition: Annotated[int, Meta(description="its partition, else -1")]
    offset: Annotated[int, Meta(description="its offset, else -1")]
    key: Annotated[str | None, Meta(description="the key that reached the node, as a text of up to 1,000 characters")]
    value: Annotated[str | None, Meta(description="the value, in the same way")]


class UncaughtErrorAnswer(TypedDict):
    """An error that stopped all tasks."""

    seen_at_ms: Annotated[int, Meta(description="when it stopped them")]
    error: Annotated[str, Meta(description="its class and message")]
    traceback: Annotated[str, Meta(description="its traceback")]
    response: Annotated[str, Meta(description="what the [uncaught exception handler](life.md#errors) answered")]
    record: Annotated[
        FailedRecordAnswer | None, Meta(description="the record on which a task failed, if it failed on one")
    ]


class ErrorsAnswer(TypedDict):
    """The errors that stopped all tasks, and the records that a handler let pass."""

    count: Annotated[int | None, Meta(description="how many since the start; null if another process runs the tasks")]
    errors: Annotated[list[UncaughtErrorAnswer], Meta(description="the last 50, the newest first")]
    passed: Annotated[
        list[DroppedAnswer] | None,
        Meta(description="the records that a handler let pass since the start; null if that cannot be seen"),
    ]


class DeadLettersAnswer(TypedDict):
    """The dead letters to redrive, and the last ones."""

    topic: Annotated[str, Meta(description="the topic of the dead letters")]
    records: Annotated[int, Meta(description="how many would be written back")]
    without_source: Annotated[int, Meta(description="records without a known source, such as errors of punctuators")]
    invalid: Annotated[int, Meta(description="records of the topic that are no dead letters")]
    letters: Annotated[list[RedrivenLetters], Meta(description="the dead letters by origin and class of errors")]
    command: Annotated[str, Meta(description="the command that writes them back")]
    last: Annotated[list[KeptLetterAnswer], Meta(description="the last 50 records of the topic, the newest first")]


class SourceAnswer(TypedDict):
    """The origin of the record of a dead letter."""

    topic: Annotated[str, Meta(description="the topic")]
    partition: Annotated[int, Meta(description="the partition")]
    offset: Annotated[int, Meta(description="the offset, -1 if no header has it")]


class KeptLetterAnswer(TypedDict):
    """A record of the topic of dead letters. Its keys, values and headers have up to 1,000 characters."""

    partition: Annotated[int, Meta(description="its partition in the topic of dead letters")]
    offset: Annotated[int, Meta(description="its offset there")]
    timestamp: Annotated[int, Meta(description="its timestamp, in ms since the epoch")]
    key: Annotated[str | None, Meta(description="the key, as text")]
    value: Annotated[str | None, Meta(description="the value, as text")]
    headers: Annotated[list[list[str | None]], Meta(description="name and value of each header, as text, up to 100")]
    redriven: Annotated[bool, Meta(description="whether it was written back")]
    source: Annotated[SourceAnswer | None, Meta(description="where it came from; null for the error of a punctuator")]
    exception: Annotated[str | None, Meta(description="name of the class of the error; null if it is no dead letter")]
    message: Annotated[str | None, Meta(description="message of the error")]
    stacktrace: Annotated[str | None, Meta(description="the end of the stack trace")]
    command: Annotated[str | None, Meta(description="the command that writes this record back, if it has a source")]


class ChangesAnswer(TypedDict):
    """The effects on the application and its stores if the program started now."""

    compared: Annotated[str, Meta(description="what was compared, as a sentence")]
    changes: Annotated[list[str], Meta(description="lines, as `penstock diff` writes them; none if nothing changes")]


# ---------------------------------------- topologies


class SerdesAnswer(TypedDict):
    """The serdes of a source or sink."""

    key: Annotated[str, Meta(description="the serde of keys")]
    value: Annotated[str, Meta(description="the serde of values")]


class TappedRecordAnswer(TypedDict):
    """A record that has reached a node while a tap of it was open."""

    key: Annotated[str, Meta(description="the key, as a short text")]
    value: Annotated[str, Meta(description="the value, as a short text")]
    timestamp: Annotated[int, Meta(description="its timestamp, in ms since the epoch")]
    task: Annotated[str, Meta(description="the task")]
    topic: Annotated[str | None, Meta(description="the topic of the input record that it comes from, if any")]
    partition: Annotated[int, Meta(description="the partition of that record, else -1")]
    offset: Annotated[int, Meta(description="the offset of that record, else -1")]


class NodeAnswer(TypedDict):
    """A node of a topology."""

    name: Annotated[str, Meta(description="its name")]
    kind: Annotated[str, Meta(description="`source`, `processor` or `sink`")]
    topics: NotRequired[Annotated[list[str], Meta(description="the topics that a source reads")]]
    topic_pattern: NotRequired[Annotated[str | None, Meta(description="the pattern of their names")]]
    topic: NotRequired[Annotated[str, Meta(description="the topic that a sink writes")]]
    stores: NotRequired[Annotated[list[str], Meta(description="the stores that a processor uses")]]
    predecessors: NotRequired[Annotated[list[str], Meta(description="nodes before a processor or sink")]]
    successors: NotRequired[Annotated[list[str], Meta(description="nodes after a source or processor")]]
    line: Annotated[str | None, Meta(description="the line of the program that made it")]
    serdes: Annotated[SerdesAnswer | None, Meta(description="the serdes of a source or sink")]
    records: Annotated[float | None, Meta(description="records processed since the start")]
    records_per_second: Annotated[float | None, Meta(description="the same a second")]
    errors: Annotated[float | None, Meta(description="records that it dropped, or that a handler skipped")]
    age_ms: Annotated[float | None, Meta(description="the largest age of a record")]
    lag: Annotated[int | None, Meta(description="the lag of a source in the topics that brokers have")]
    tapped: Annotated[
        list[TappedRecordAnswer] | None,
        Meta(description="the last records of an open [tap](notebook.md#the-records-at-a-node), the newest first"),
    ]


class SubtopologyAnswer(TypedDict):
    """A sub-topology, or a global store with its processor."""

    id: Annotated[int, Meta(description="its number")]
    share_of_time: Annotated[float | None, Meta(description="of the time of all tasks, from 0 to 1")]
    state_bytes: Annotated[int | None, Meta(description="bytes of state in local databases")]
    lag: Annotated[int | None, Meta(description="the lag of its tasks")]
    records_per_second: Annotated[float | None, Meta(description="records that its tasks process")]
    errors: Annotated[float | None, Meta(description="records that its tasks dropped")]
    nodes: Annotated[list[NodeAnswer], Meta(description="its nodes")]


class TopologyAnswer(TypedDict):
    """A topology with its measurements."""

    name: Annotated[str, Meta(description=_TOPOLOGY)]
    subtopologies: Annotated[list[SubtopologyAnswer], Meta(description="its sub-topologies")]
    global_stores: Annotated[list[SubtopologyAnswer], Meta(description="its global stores")]


class TopologiesAnswer(TypedDict):
    """The topologies of an application."""

    topologies: Annotated[list[TopologyAnswer], Meta(description="the topologies")]


# ---------------------------------------- tasks


class AwaitedPartitionAnswer(TypedDict):
    """A partition for which a task waits, because of `max.task.idle.ms`."""

    topic: Annotated[str, Meta(description="the topic")]
    partition: Annotated[int, Meta(description="the partition")]


class PartitionAnswer(AwaitedPartitionAnswer):
    """A partition that a task reads."""

    committed_offset: Annotated[int, Meta(description="the next offset to read after the last commit")]
    end_offset: Annotated[int, Meta(description="the offset behind its last committed record")]
    lag: Annotated[int, Meta(description="the distance between them")]


class TaskNameAnswer(TypedDict):
    """A task, by its name."""

    topology: Annotated[str, Meta(description=_TOPOLOGY)]
    task: Annotated[str, Meta(description="`<sub-topology>_<partition>`")]


class TaskAnswer(TaskNameAnswer):
    """A task of this program."""

    worker: Annotated[
        str | None,
        Meta(
            description="where it runs: a thread, a process, or on Spark the machine and the process in which it ran "
            "last; if it is watched on threads, the member of the group"
        ),
    ]
    waits_for: Annotated[
        list[AwaitedPartitionAnswer], Meta(description="the partitions that its waiting records wait for")
    ]
    processed: Annotated[int | None, Meta(description="records processed since the start")]
    dropped: Annotated[int | None, Meta(description="records without a result since the start")]
    stream_time_at_ms: Annotated[int | None, Meta(description="its stream time")]
    lag: Annotated[int, Meta(description="its lag over all partitions")]
    partitions: Annotated[list[PartitionAnswer], Meta(description="the partitions of brokers that it reads")]


@dataclass(frozen=True)
class _OfTopology:
    topology: Annotated[str, Meta(description=_TOPOLOGY)]


@dataclass(frozen=True)
class GroupAnswer(GroupStatistics, _OfTopology):
    """The group of an application that is watched on threads."""


class TasksAnswer(TypedDict):
    """The tasks of this program."""

    seen_at_ms: Annotated[int, Meta(description="when the figures were read")]
    tasks: Annotated[list[TaskAnswer], Meta(description="the tasks")]
    groups: Annotated[list[GroupAnswer], Meta(description="the groups, if the application is watched on threads")]
    standby_tasks: Annotated[list[TaskNameAnswer], Meta(description="the standby tasks")]
    restoring_tasks: Annotated[list[TaskNameAnswer], Meta(description="the tasks that restore their state")]
    problems: Annotated[list[str], Meta(description="why figures are not known")]


class CommitFiguresAnswer(TypedDict):
    """The duration and size of a commit."""

    number: Annotated[int, Meta(description="number of the commit, on Spark that of the epoch")]
    committed_at_ms: Annotated[int, Meta(description="when it ended")]
    records: Annotated[int, Meta(description="records that tasks processed for it")]
    phases_ms: Annotated[Mapping[str, float], Meta(description="the time in each [phase](ui.md#commits)")]


class TopologyCommitsAnswer(TypedDict):
    """The last commits of a topology."""

    name: Annotated[str, Meta(description=_TOPOLOGY)]
    commits: Annotated[Sequence[CommitFiguresAnswer], Meta(description="the last 60, the newest last")]


class CommitsAnswer(TypedDict):
    """The last commits of each topology."""

    seen_at_ms: Annotated[int, Meta(description="when the figures were read")]
    topologies: Annotated[list[TopologyCommitsAnswer], Meta(description="the topologies")]


# ---------------------------------------- state


class StoreAnswer(TypedDict):
    """A store."""

    topology: Annotated[str, Meta(description=_TOPOLOGY)]
    store: Annotated[str, Meta(description="its name")]
    kind: Annotated[str, Meta(description="its kind, such as `timestamped_key_value`")]
    entries: Annotated[int | None, Meta(description="about how many [entries](ui.md#sizes-of-stores) are committed")]
    bytes: Annotated[int | None, Meta(description="bytes of the local databases of the tasks that have it")]
    segments: Annotated[int | None, Meta(description="segments of the tasks that have it, on Spark")]
    segment_bytes: Annotated[int | None, Meta(description="bytes of these segments")]
    processors: Annotated[list[str], Meta(description="the processors that use it")]


class StoresAnswer(TypedDict):
    """The stores of an application."""

    stores: Annotated[list[StoreAnswer], Meta(description="the stores")]


class EntryAnswer(TypedDict):
    """An entry of a store."""

    partition: Annotated[
        int | None,
        Meta(description="the partition of the store that has it; null for a global store, and without a value"),
    ]
    key: Annotated[Any, Meta(description="the key; bytes as hexadecimal digits")]
    value: Annotated[Any, Meta(description="the value; bytes as hexadecimal digits")]
    timestamp: NotRequired[Annotated[int, Meta(description="its timestamp, in ms since the epoch")]]
    window_start: NotRequired[Annotated[int, Meta(description="the start of its window or session")]]
    window_end: NotRequired[Annotated[int, Meta(description="the end of its window or session")]]
    valid_to: NotRequired[Annotated[int, Meta(description="until when an old version was valid")]]


class EntriesAnswer(TypedDict):
    """Entries of a store."""

    topology: Annotated[str, Meta(description=_TOPOLOGY)]
    store: Annotated[str, Meta(description="its name")]
    commit: Annotated[CommitAnswer | None, Meta(description="the commit as of which they are")]
    entries: Annotated[list[EntryAnswer], Meta(description="the entries")]
    more: Annotated[bool, Meta(description="whether there are others")]


# ---------------------------------------- health and control


class LiveAnswer(TypedDict):
    """Whether an error has ended the application."""

    state: Annotated[str | None, Meta(description="its state; null if too little is seen of it")]
    reasons: Annotated[list[str], Meta(description="why it is not live; none if it is")]


class ReadyAnswer(TypedDict):
    """Whether the application runs and keeps up."""

    state: Annotated[str | None, Meta(description="its state; null if too little is seen of it")]
    lag: Annotated[int | None, Meta(description="its lag")]
    reasons: Annotated[list[str], Meta(description="why it is not ready; none if it is")]


class Outcome(TypedDict):
    """The result of an action."""

    state: Annotated[str, Meta(description="the state of the application")]
    paused: Annotated[bool, Meta(description="whether it is paused")]
    savepoint: NotRequired[Annotated[str, Meta(description="the directory of a savepoint")]]
    commit: NotRequired[Annotated[int, Meta(description="the commit that it has")]]
    bytes: NotRequired[Annotated[int, Meta(description="its size")]]
    dead_letter_topic: NotRequired[Annotated[str, Meta(description="the topic that was redriven")]]
    redriven: NotRequired[Annotated[int, Meta(description="the number of records that were redriven")]]
    invalid: NotRequired[Annotated[int, Meta(description="the number of records that are not dead letters")]]
    node: NotRequired[Annotated[str, Meta(description="the node whose tap was opened or closed")]]


class Failure(TypedDict):
    """The error of a request; its status is 400 or more."""

    error: Annotated[str, Meta(description="what was expected, and what to do")]


# ---------------------------------------- addresses


class Address(NamedTuple):
    """An address.

    Args:
        answer: the type of its answer.
        what: its purpose.
        parameters: the meaning of each parameter.
        method: the method of HTTP.
        unavailable: the type of its answer with status 503.
    """

    answer: Any
    what: str
    parameters: Mapping[str, str] = {}
    method: str = "get"
    unavailable: Any = Failure


_OF_ENTRIES: Final = {
    "topology": "the named topology that has the store",
    "key": "one key; of a versioned store, which needs it, all versions",
    "from": "keys from here on",
    "to": "keys up to here, included",
    "from_time": "windows and versions from this time on, in ms",
    "to_time": "windows and versions up to this time, in ms",
    "partition": "one partition of the store",
    "limit": f"the most entries, {DEFAULT_LIMIT} by default and {MOST_ENTRIES:,} at most",
}

ADDRESSES: Final[Mapping[str, Address]] = {
    "/api/v1/overview": Address(OverviewAnswer, "Whether the application runs and keeps up."),
    "/api/v1/history": Address(
        HistoryAnswer,
        "Figures over the last hour or day.",
        {"range": "`hour`, the default, or `day`", "after": "only later points, in ms since the epoch"},
    ),
    "/api/v1/topology": Address(TopologiesAnswer, "The topologies with what was measured of their nodes."),
    "/topology.json": Address(TopologiesAnswer, "The same."),
    "/api/v1/tasks": Address(TasksAnswer, "How far the tasks of this program are."),
    "/api/v1/commits": Address(CommitsAnswer, "What the last commits took."),
    "/api/v1/stores": Address(StoresAnswer, "The stores."),
    "/api/v1/stores/{store}": Address(EntriesAnswer, "Entries of a store, as of the newest commit.", _OF_ENTRIES),
    "/api/v1/waiting": Address(WaitingAnswer, "The operators with calls, and those that park records."),
    "/api/v1/parked/{store}": Address(
        ParkedKeysAnswer,
        "The keys whose records are parked in a store; it reads the store.",
        {"topology": "the named topology that has the store"},
    ),
    "/api/v1/errors": Address(ErrorsAnswer, "The errors that stopped all tasks."),
    "/api/v1/dead-letters": Address(
        DeadLettersAnswer, "The dead letters that a redrive would write; it asks the brokers."
    ),
    "/api/v1/changes": Address(ChangesAnswer, "What [the program would change](ui.md#what-would-change)."),
    "/api/v1/control/{action}": Address(
        Outcome,
        "Do an [action](ui.md#control), with the token in the header `Authorization`.",
        {"node": "the node of `tap` and `untap`", "topology": "the named topology that has it"},
        method="post",
    ),
    "/health/live": Address(
        LiveAnswer, "200, or 503 after an error has ended the application.", unavailable=LiveAnswer
    ),
    "/health/ready": Address(
        ReadyAnswer,
        "200 while the application runs and keeps up, else 503.",
        {
            "max_lag": "the most records that the application may be behind",
            "max_commit_age": "the largest age of the last commit while records wait, in ms",
        },
        unavailable=ReadyAnswer,
    ),
}
"""All addresses that answer in JSON, except that of the schema."""
