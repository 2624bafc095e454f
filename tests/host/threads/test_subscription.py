"""What members of a group tell each other."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from penstock.host.threads.subscription import (
    IncompatibleMemberError,
    MemberShare,
    Rules,
    Subscription,
    decode_subscription,
    encode_subscription,
    follow,
    lead,
)
from penstock.plan.subtopology import TaskId
from penstock.record import TopicPartition

TASKS = [TaskId(0, number) for number in range(4)]
RULES = Rules({task: (TopicPartition("orders", task.partition),) for task in TASKS})


def subscribed(process: str, owned: list[TaskId], rules: Rules = RULES, version: int = 1) -> bytes:
    pairs = [(task.subtopology, task.partition) for task in owned]
    return encode_subscription(Subscription(version, process, rules.application, 3, pairs), rules)


def test_a_subscription_is_read_as_it_was_written() -> None:
    found = decode_subscription("m", subscribed("p", TASKS[:2]))
    assert found.candidate("m", 2) == ("m", "p", 3, frozenset(TASKS[:2]), {}, {}, 1)
    assert subscribed("p", TASKS[:1])[:2] == b"\x00\x02"  # the format in which Kafka's tools read it


def test_each_member_computes_what_the_leader_has_planned() -> None:
    assignments = lead({"a": subscribed("p", []), "b": subscribed("q", [])}, RULES)
    found = {member: follow(member, content, RULES).tasks for member, content in assignments.items()}
    assert sorted(task for tasks in found.values() for task in tasks) == TASKS
    assert [len(tasks) for tasks in found.values()] == [2, 2]


def test_a_task_waits_for_its_owner() -> None:
    assignments = lead({"a": subscribed("p", TASKS), "b": subscribed("q", [])}, RULES)
    share = follow("a", assignments["a"], RULES)
    assert (len(share.tasks), share.reported, share.is_final) == (2, frozenset(TASKS), True)
    assert follow("b", assignments["b"], RULES) == MemberShare(frozenset(), frozenset(), frozenset(), True)


def test_a_member_keeps_a_copy_of_a_task_that_waits_for_its_owner() -> None:
    rules = replace(RULES, stateful=frozenset(TASKS), standbys=1)
    assignments = lead({"a": subscribed("p", TASKS, rules), "b": subscribed("q", [], rules)}, rules)
    share = follow("b", assignments["b"], rules)
    assert (share.tasks, share.standbys) == (frozenset(), frozenset(TASKS))


def test_a_task_waits_for_a_warm_up_by_the_ends_and_the_settings_of_the_leader() -> None:
    rules = replace(RULES, stateful=frozenset(TASKS), acceptable_lag=5, warm_ups=1)
    members = {"a": subscribed("p", TASKS, rules), "b": subscribed("q", [], rules)}
    assignments = lead(members, rules, dict.fromkeys(TASKS, 6))
    share = follow("b", assignments["b"], replace(rules, acceptable_lag=7))
    assert (len(share.standbys), share.is_final) == (1, False)


def test_tasks_go_to_their_state_though_the_ends_of_changelogs_are_not_known() -> None:
    rules = replace(RULES, stateful=frozenset(TASKS), standbys=1)
    copies = {"a": TASKS[2:], "b": TASKS[:2]}
    members = {
        name: encode_subscription(
            Subscription(1, name, rules.application, 3, [], [(*task, 50_000) for task in tasks]), rules
        )
        for name, tasks in copies.items()
    }
    assignments = lead(members, rules, None)
    for name, tasks in copies.items():
        assert follow(name, assignments[name], rules).tasks == frozenset(tasks)


@pytest.mark.parametrize(("version", "sizes"), [(1, [2, 2]), (2, [3, 1])])
def test_workers_count_from_the_second_version_of_the_rules_on(version: int, sizes: list[int]) -> None:
    first = Subscription(2, "p", RULES.application, -1, [], workers=3)
    members = {"a": encode_subscription(first, RULES), "b": subscribed("q", [], version=version)}
    assignments = lead(members, RULES)
    assert [len(follow(member, assignments[member], RULES).tasks) for member in "ab"] == sizes


def test_a_static_member_has_its_share_by_its_name() -> None:
    one, two = (
        encode_subscription(Subscription(1, name, RULES.application, -1, [], instance=name), RULES) for name in "pq"
    )
    assignments = lead({"a": one, "b": two}, RULES)
    shares = [follow("p", assignments["a"], RULES).tasks, follow("q", assignments["b"], RULES).tasks]
    assert sorted(task for tasks in shares for task in tasks) == TASKS


BILLS = Rules({TaskId(number, 0): (TopicPartition("bills", 0),) for number in range(2)})


def test_a_member_with_another_topology_is_refused_and_the_others_go_on() -> None:
    assignments = lead({"a": subscribed("p", TASKS), "b": subscribed("q", [], BILLS)}, RULES)
    assert follow("a", assignments["a"], RULES).tasks == frozenset(TASKS)
    with pytest.raises(IncompatibleMemberError, match=r"All programs under one application\.id need the same topology"):
        follow("b", assignments["b"], BILLS)


def test_a_leader_with_another_topology_than_those_that_run_is_refused_itself() -> None:
    with pytest.raises(IncompatibleMemberError, match=r"All programs under one application\.id need the same topology"):
        lead({"a": subscribed("p", TASKS), "b": subscribed("q", [], BILLS)}, BILLS)
    none_runs = lead({"a": subscribed("p", []), "b": subscribed("q", [], BILLS)}, BILLS)
    assert follow("b", none_runs["b"], BILLS).tasks == BILLS.groups.keys()


def test_of_members_with_the_same_topology_those_are_refused_that_know_of_fewer_partitions() -> None:
    fewer = Rules({task: RULES.groups[task] for task in TASKS[:3]})
    members = {"a": subscribed("p", []), "b": subscribed("q", TASKS[:3], fewer)}
    assignments = lead(members, RULES)
    assert follow("a", assignments["a"], RULES).tasks == frozenset(TASKS)
    with pytest.raises(IncompatibleMemberError, match=r"leader of the group knows of 4 partitions .* instance of 3"):
        follow("b", assignments["b"], fewer)
    with pytest.raises(IncompatibleMemberError, match=r"member a of the group knows of 4 partitions .* instance of 3"):
        lead(members, fewer)


def test_of_members_with_other_groupers_those_that_have_tasks_go_on() -> None:
    pairs = Rules({TASKS[n]: tuple(p for t in TASKS[2 * n : 2 * n + 2] for p in RULES.groups[t]) for n in range(2)})
    members = {"a": subscribed("p", TASKS), "b": subscribed("q", [], pairs)}
    assignments = lead(members, RULES)
    assert follow("a", assignments["a"], RULES).tasks == frozenset(TASKS)
    with pytest.raises(IncompatibleMemberError, match=r"All instances need the same partition\.grouper"):
        follow("b", assignments["b"], pairs)
    with pytest.raises(IncompatibleMemberError, match=r"All instances need the same partition\.grouper"):
        lead(members, pairs)


def of_first_version(owned: list[TaskId], rules: Rules = RULES) -> bytes:
    """Return the subscription of a member that tells no inputs."""
    application = msgspec.structs.replace(rules.application, inputs="")
    pairs = [(task.subtopology, task.partition) for task in owned]
    return encode_subscription(Subscription(1, "old", application, 3, pairs), rules)


def test_a_member_of_the_first_version_has_its_share_beside_a_leader_of_the_second() -> None:
    members = {"a": subscribed("p", [], version=2), "b": of_first_version(TASKS)}
    assignments = lead(members, RULES)
    shares = [follow(name, assignments[name], RULES) for name in "ab"]
    assert sorted(len(share.tasks) for share in shares) == [0, 2], "those that move wait for their owner"


def test_a_member_of_the_first_version_with_another_grouper_is_refused() -> None:
    pairs = Rules({TASKS[n]: tuple(p for t in TASKS[2 * n : 2 * n + 2] for p in RULES.groups[t]) for n in range(2)})
    assignments = lead({"a": subscribed("p", TASKS, version=2), "b": of_first_version([], pairs)}, RULES)
    with pytest.raises(IncompatibleMemberError, match=r"All instances need the same partition\.grouper"):
        follow("b", assignments["b"], pairs)


def test_a_plan_that_differs_is_refused() -> None:
    [assignment] = lead({"a": subscribed("p", [])}, RULES).values()
    with pytest.raises(IncompatibleMemberError, match="by other rules than the leader"):
        follow("a", assignment, replace(RULES, groups={TASKS[0]: RULES.groups[TASKS[0]]}))
    with pytest.raises(IncompatibleMemberError, match="by other rules than the leader"):
        follow("unknown", assignment, RULES)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00",
        b"\x00\x02\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x02\x7f\xff\xff\xff",
    ],
)
def test_bytes_of_others_are_refused(content: bytes) -> None:
    with pytest.raises(IncompatibleMemberError, match=r"Give each application its own application\.id"):
        decode_subscription("m", content)
    with pytest.raises(IncompatibleMemberError, match="not of this application"):
        follow("m", content, RULES)


def test_a_later_version_may_add_fields() -> None:
    class Later(Subscription, frozen=True):
        more: int = 5

    later = Later(2, "p", RULES.application, 3, [])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(later), type=Subscription).version == 2
    assignments = lead({"a": subscribed("p", []), "b": encode_subscription(later, RULES)}, RULES)
    assert len(follow("b", assignments["b"], RULES).tasks) == 2


def test_a_member_that_shuts_down_the_application_is_named_to_all() -> None:
    ends = encode_subscription(Subscription(1, "p", RULES.application, 3, [], shuts_down=True), RULES)
    assignments = lead({"a": ends, "b": subscribed("q", []), "c": subscribed("r", [], BILLS)}, RULES)
    for member, rules in (("a", RULES), ("b", RULES), ("c", BILLS)):
        assert follow(member, assignments[member], rules).shut_down_by == "member a"
