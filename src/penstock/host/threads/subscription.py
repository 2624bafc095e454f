"""The messages between the members of a group, as bytes: subscriptions and assignments.

Both have Kafka's formats (ConsumerProtocolSubscription and ConsumerProtocolAssignment, version 2), so that its tools
show topics and partitions. Penstock's own data is in their `user_data`, as a MessagePack map: a version ignores unknown
fields, so newer members can add some.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from penstock.errors import StreamsError
from penstock.host.threads.assignor import VERSION, Candidate, LeaderState, Plan, assign, given
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition
from penstock_broker.wire.codec import Codec, Message, structure_codec
from penstock_broker.wire.primitives import Cursor, MalformedMessageError, Sink
from penstock_broker.wire.schemas import consumer_protocol_assignment, consumer_protocol_subscription

_FORMAT: Final = 2
_INT16: Final = struct.Struct(">h")
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_ELEMENTS: Final = 1_000_000
_WITH_WORKERS: Final = 2
"""The first version of the rules that counts workers."""
_SUBSCRIPTION: Final = structure_codec(consumer_protocol_subscription.DATA.at(_FORMAT))
_ASSIGNMENT: Final = structure_codec(consumer_protocol_assignment.DATA.at(_FORMAT))


class IncompatibleMemberError(StreamsError):
    """The members of a group on the threads host do not run the same application, or not the same version.

    What to do: Give each application its own `application.id`, and run the same version of Penstock and of the program
    in all instances: see docs/threads.md#groups.
    """


class Application(msgspec.Struct, frozen=True):
    """The tasks of a member, for comparison with those of others.

    Args:
        program: a digest without partitions: the sub-topologies, which of them have state, and the kinds of their
            stores, whose changelogs other members would misread.
        partitions: the number of partitions that the tasks read.
        tasks: a digest of the tasks with their partitions.
        inputs: a digest of all these partitions, empty if the member does not send it.
    """

    program: str
    partitions: int
    tasks: str
    inputs: str = ""

    def has_tasks_of(self, other: Application) -> bool:
        """Return whether another member has the same tasks.

        The inputs are not compared: members with version 1 of the rules do not send them, and the tasks imply them.
        """
        mine, others = ((each.program, each.partitions, each.tasks) for each in (self, other))
        return mine == others

    def groups_otherwise(self, other: Application) -> bool:
        """Return whether another member groups the same partitions into other tasks."""
        if self.inputs and other.inputs:
            same = self.inputs == other.inputs
        else:
            same = self.partitions == other.partitions
        return same and self.program == other.program and self.tasks != other.tasks


class Subscription(msgspec.Struct, frozen=True):
    """The subscription of a member in its join.

    Args:
        version: the latest version of the rules that it has.
        process: the id of its process.
        application: its tasks; equal for all members.
        generation: the generation of the group in which it had its tasks.
        owned: its tasks, each as a pair of numbers.
        positions: of the tasks with state on the member: two numbers, and the sum of the next offsets of its
            changelogs.
        instance: its group.instance.id, empty if not set.
        tags: its values of `client.tag.`, by key.
        server: its application.server, empty if not set.
        shuts_down: whether all members are to commit and end.
        workers: the number of tasks that it can run at one time, since version 2 of the rules.
    """

    version: int
    process: str
    application: Application
    generation: int
    owned: list[tuple[int, int]]
    positions: list[tuple[int, int, int]] = []
    instance: str = ""
    tags: dict[str, str] = {}
    server: str = ""
    shuts_down: bool = False
    workers: int = 1

    def name(self, member: str) -> str:
        """Return the name in plans of the member with this id.

        A static member has another id after each start, but keeps its name.
        """
        return self.instance or member

    def candidate(self, name: str, version: int) -> Candidate:
        """Return the member of this subscription by the rules of `version`."""
        owned = frozenset(TaskId(*task) for task in self.owned)
        positions = {TaskId(*task): position for *task, position in self.positions}
        workers = max(1, self.workers) if version >= _WITH_WORKERS else 1
        return Candidate(name, self.process, self.generation, owned, positions, self.tags, workers)


class Assignment(msgspec.Struct, frozen=True):
    """The leader's message to a member.

    Args:
        version: the version of the rules by which all members plan.
        inputs: the inputs of the plan (`Inputs`), compressed.
        digest: of the leader's plan.
        refusal: the reason to exclude the member from the plan, empty if it is included.
        shut_down_by: the member that has shut down the application, empty if it is not shut down.
    """

    version: int
    inputs: bytes
    digest: bytes
    refusal: str = ""
    shut_down_by: str = ""


class Inputs(msgspec.Struct, frozen=True):
    """The inputs of a plan.

    Args:
        members: the subscriptions of all members by name.
        ends: of the changelogs of each task: its two numbers, and the sum of their ends.
        standbys: from the leader's configuration, like the next three; see `Rules`.
    """

    members: dict[str, Subscription]
    ends: list[tuple[int, int, int]]
    standbys: int
    acceptable_lag: int
    warm_ups: int
    tags: list[str]

    def candidates(self, version: int) -> list[Candidate]:
        """Return the members by the rules of `version`."""
        return [one.candidate(name, version) for name, one in sorted(self.members.items())]

    def plan(self, rules: Rules, version: int) -> Plan:
        """Return the plan by the rules of `version`."""
        ends = {TaskId(*task): end for *task, end in self.ends}
        state = LeaderState(ends, self.standbys, self.acceptable_lag, self.warm_ups, self.tags)
        return assign(self.candidates(version), rules.groups, rules.stateful, state)


class Endpoint(NamedTuple):
    """The address of a member's state. server: its application.server. active, standby: its tasks."""

    server: str
    active: frozenset[TaskId]
    standby: frozenset[TaskId]


class MemberShare(NamedTuple):
    """The content of an assignment for its member.

    Args:
        tasks: the assigned tasks.
        standbys: the tasks to keep copies of, also while the member waits for their owner.
        reported: the tasks that the member had when it joined, as the leader knows; for a static member they may be
            those of its previous run.
        is_final: whether no task of the group waits for a warm-up.
        endpoints: of all members with an address.
        shut_down_by: the member that has shut down the application, empty if it is not shut down. In a shutdown there
            are no tasks, and is_final is whether all members already knew of it.
        has_twin: whether another member has the process id of this one. All have joined for this plan, so it is no
            earlier run of this process.
    """

    tasks: frozenset[TaskId]
    standbys: frozenset[TaskId]
    reported: frozenset[TaskId]
    is_final: bool
    endpoints: tuple[Endpoint, ...] = ()
    shut_down_by: str = ""
    has_twin: bool = False


@dataclass(frozen=True)
class Rules:
    """The inputs of a plan that are the same in all members.

    Args:
        groups: the partitions that each task reads.
        stateful: the tasks that have standbys.
        standbys: their number (num.standby.replicas), if this member leads, like the next three.
        acceptable_lag: the most records of a task's state that a member may lack to get it (acceptable.recovery.lag).
        warm_ups: the most simultaneous copies for moving tasks (max.warmup.replicas).
        tags: the keys whose values differ between a task and its standbys if possible (rack.aware.assignment.tags).
        stores: the kinds of the stores with a changelog, by sub-topology and name.
    """

    groups: Mapping[TaskId, tuple[TopicPartition, ...]]
    stateful: frozenset[TaskId] = frozenset()
    standbys: int = 0
    acceptable_lag: int = 10_000
    warm_ups: int = 2
    tags: tuple[str, ...] = ()
    stores: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def topics(self) -> list[str]:
        """The topics that tasks read."""
        return sorted({partition.topic for group in self.groups.values() for partition in group})

    @cached_property
    def application(self) -> Application:
        """The tasks, for comparison between members."""
        parts = (
            sorted((str(task), [str(partition) for partition in group]) for task, group in self.groups.items()),
            sorted(map(str, self.stateful)),
        )
        program = (
            sorted({task.subtopology for task in self.groups}),
            sorted({task.subtopology for task in self.stateful}),
            sorted((id, sorted(kinds.items())) for id, kinds in self.stores.items()),
        )
        inputs = sorted(str(partition) for group in self.groups.values() for partition in group)
        return Application(_digest(program), len(inputs), _digest(parts), _digest(inputs))


def _digest(parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def encode_subscription(subscription: Subscription, rules: Rules) -> bytes:
    """Return the bytes of a subscription for JoinGroup."""
    owned = _by_topic(rules, (TaskId(*task) for task in subscription.owned))
    return _encoded(
        _SUBSCRIPTION,
        {
            "topics": rules.topics,
            "owned_partitions": owned,
            "generation_id": subscription.generation,
            "user_data": msgspec.msgpack.encode(subscription),
        },
    )


def decode_subscription(member: str, content: bytes | memoryview) -> Subscription:
    """Return the subscription of a member.

    Raises:
        IncompatibleMemberError: it is not a subscription of Penstock.
    """
    try:
        return msgspec.msgpack.decode(_user_data(_SUBSCRIPTION, content), type=Subscription)
    except (MalformedMessageError, msgspec.DecodeError, struct.error) as error:
        raise IncompatibleMemberError(
            f"The member {member} of the group is not of this application: its subscription cannot be read ({error}). "
            "Give each application its own application.id."
        ) from error


def lead(
    members: Mapping[str, bytes | memoryview], rules: Rules, ends: Mapping[TaskId, int] | None = None
) -> dict[str, bytes]:
    """Return the assignments from the leader of a group, by member.

    Members with other tasks than the leader get a refusal. If others already run another program, or know of more
    partitions, the leader itself is excluded.

    Args:
        members: the subscriptions of all members by id.
        rules: the leader's.
        ends: the sum of the changelog ends of each task; None if unknown: then the highest position of a member
            replaces it.

    Raises:
        IncompatibleMemberError: a member is not of this application, or the leader is excluded from it.
    """
    everybody = {member: decode_subscription(member, content) for member, content in members.items()}
    _check_leads(everybody, rules)
    found = {member: one for member, one in everybody.items() if one.application.has_tasks_of(rules.application)}
    refused = {member: _refusal(one, rules) for member, one in everybody.items() if member not in found}
    named = {one.name(member): one for member, one in sorted(found.items())}
    known = [(*task, end) for task, end in sorted((_furthest(found.values()) if ends is None else ends).items())]
    inputs = Inputs(named, known, rules.standbys, rules.acceptable_lag, rules.warm_ups, list(rules.tags))
    version = min(VERSION, *(one.version for one in found.values()))
    plan = inputs.plan(rules, version)
    content = zlib.compress(msgspec.msgpack.encode(inputs))
    shut_down_by = next((f"member {one.name(member)}" for member, one in everybody.items() if one.shuts_down), "")
    data = Assignment(version, content, digest(plan), shut_down_by=shut_down_by)
    user_data = msgspec.msgpack.encode(data)
    tasks = given(plan, inputs.candidates(version))
    assignments = {
        member: _assignment(_by_topic(rules, tasks[one.name(member)]), user_data) for member, one in found.items()
    }
    for member, why in refused.items():
        assignments[member] = _assignment([], msgspec.msgpack.encode(Assignment(version, b"", b"", why, shut_down_by)))
    return assignments


def _furthest(members: Collection[Subscription]) -> dict[TaskId, int]:
    """Return the highest position of a member in the state of each task."""
    furthest: dict[TaskId, int] = {}
    for one in members:
        for *task, position in one.positions:
            id = TaskId(*task)
            furthest[id] = max(position, furthest.get(id, 0))
    return furthest


def _assignment(topics: list[Message], user_data: bytes) -> bytes:
    return _encoded(_ASSIGNMENT, {"assigned_partitions": topics, "user_data": user_data})


def _check_leads(members: Mapping[str, Subscription], rules: Rules) -> None:
    """Raise IncompatibleMemberError if the leader must be excluded from the group."""
    mine = rules.application
    running = {one.application.program for one in members.values() if one.owned}
    if running and mine.program not in running:
        raise IncompatibleMemberError(_OTHER_PROGRAM)
    for member, one in members.items():
        if one.owned and one.application.groups_otherwise(mine):
            raise IncompatibleMemberError(_OTHER_GROUPER)
        if one.application.program == mine.program and one.application.partitions > mine.partitions:
            raise IncompatibleMemberError(
                f"The member {member} of the group knows of {one.application.partitions} partitions that the tasks "
                f"read, and this instance of {mine.partitions}."
            )


def _refusal(one: Subscription, rules: Rules) -> str:
    """Return the reason to exclude a member with other tasks from the group."""
    if one.application.program != rules.application.program:
        return _OTHER_PROGRAM
    if one.application.groups_otherwise(rules.application):
        return _OTHER_GROUPER
    return (
        f"The leader of the group knows of {rules.application.partitions} partitions that the tasks read, and this "
        f"instance of {one.application.partitions}."
    )


_OTHER_PROGRAM: Final = (
    "All programs under one application.id need the same topology with the same stores, and other members of the group "
    "run another one. "
    "Stop all instances before you start a changed program, or give this one another application.id."
)


_OTHER_GROUPER: Final = (
    "All instances need the same partition.grouper, and that of other members of the group makes other tasks of the "
    "same partitions. Set the same one here; to change it, stop all instances first. Tasks with state keep their "
    "partitions."
)


def follow(name: str, content: bytes | memoryview, rules: Rules) -> MemberShare:
    """Return the share of a member, computed from its assignment.

    Args:
        name: its group.instance.id, or its id if not set.
        content: its assignment.
        rules: the member's.

    Raises:
        IncompatibleMemberError: the leader refuses this member, or its plan differs.
    """
    try:
        data = msgspec.msgpack.decode(_user_data(_ASSIGNMENT, content), type=Assignment)
        if data.refusal and not data.shut_down_by:
            raise IncompatibleMemberError(data.refusal)
        if data.refusal:
            return _nothing(data.shut_down_by, is_final=True)
        unpacked = zlib.decompressobj().decompress(data.inputs, _MOST_BYTES)
        inputs = msgspec.msgpack.decode(unpacked, type=Inputs)
    except (MalformedMessageError, msgspec.DecodeError, struct.error, zlib.error) as error:
        raise IncompatibleMemberError(
            f"The leader of the group is not of this application: the assignment cannot be read ({error}). Give each "
            "application its own application.id."
        ) from error
    if data.shut_down_by:
        return _nothing(data.shut_down_by, all(one.shuts_down for one in inputs.members.values()))
    plan = inputs.plan(rules, data.version) if inputs.members else Plan({}, {})
    if data.version > VERSION or digest(plan) != data.digest or name not in plan.active:
        raise IncompatibleMemberError(
            f"This instance (rules of version {VERSION}) assigns tasks by other rules than the leader of the group "
            f"(version {data.version}). Run the same version of Penstock and of the program in all instances."
        )
    active = given(plan, inputs.candidates(data.version))
    standbys = plan.standby[name] | (plan.active[name] - active[name]) & rules.stateful
    endpoints = tuple(
        Endpoint(one.server, active[each], plan.standby[each]) for each, one in inputs.members.items() if one.server
    )
    mine = inputs.members[name]
    has_twin = sum(one.process == mine.process for one in inputs.members.values()) > 1
    reported = mine.candidate(name, data.version).owned
    return MemberShare(active[name], standbys, reported, not plan.waiting, endpoints, has_twin=has_twin)


def _nothing(shut_down_by: str, is_final: bool) -> MemberShare:
    """Return the share of a member of a shut-down application."""
    return MemberShare(frozenset(), frozenset(), frozenset(), is_final, shut_down_by=shut_down_by)


def digest(plan: Plan) -> bytes:
    """Return a digest of a plan."""
    parts = [
        sorted((member, sorted(map(tuple, tasks))) for member, tasks in of_members.items())
        for of_members in (plan.active, plan.standby)
    ]
    return hashlib.sha256(msgspec.msgpack.encode(parts)).digest()


def _by_topic(rules: Rules, tasks: Any) -> list[Message]:
    topics: dict[str, set[int]] = {}
    for task in tasks:
        for partition in rules.groups.get(task, ()):
            topics.setdefault(partition.topic, set()).add(partition.partition)
    return [{"topic": topic, "partitions": sorted(partitions)} for topic, partitions in sorted(topics.items())]


def _encoded(codec: Codec, message: Message) -> bytes:
    sink = Sink()
    sink.number(_INT16, _FORMAT)
    codec.encode(sink, message)
    return b"".join(bytes(chunk) for chunk in sink.chunks)


def _user_data(codec: Codec, content: bytes | memoryview) -> bytes:
    """Return the user data of a subscription or assignment; later Kafka formats only append fields."""
    cursor = Cursor(memoryview(content), _MOST_ELEMENTS)
    if cursor.number(_INT16) < _FORMAT:
        raise MalformedMessageError("its format is older than 2")
    message: Message = codec.decode(cursor)
    return bytes(message["user_data"] or b"")
