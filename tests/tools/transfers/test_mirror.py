"""`penstock mirror`: the topics of one embedded broker become those of another one, exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.host.crashpoints import TRANSFER_POINTS
from penstock.tools.cli import mirror as cli_mirror
from penstock_broker.process import BrokerProcess
from tests.support.brokers import KEEPS_RECORDS
from tests.support.commands import Command, Run, penstock
from tests.support.ports import free_port
from tests.support.protocol_client import ProtocolClient
from tests.support.transactions import Transactions
from tests.support.waiting import until
from tests.tools.transfers.topics import Sent, Topics


@pytest.fixture(scope="module")
def other_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("other-broker"), arguments=KEEPS_RECORDS) as process:
        yield process


@pytest.fixture
def source(other_broker: BrokerProcess) -> Iterator[Topics]:
    with Topics(other_broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def target(embedded_broker: BrokerProcess) -> Iterator[Topics]:
    with Topics(embedded_broker.bootstrap_servers) as opened:
        yield opened


class Mirroring:
    """Runs `penstock mirror` under a name of its own, so that tests do not fence each other."""

    def __init__(self, source: BrokerProcess, target: BrokerProcess, name: str, run: Run) -> None:
        self.clusters = ("--from", source.bootstrap_servers, "--to", target.bootstrap_servers)
        self.back = ("--from", target.bootstrap_servers, "--to", source.bootstrap_servers)
        self.name = name
        self.run = run

    def arguments(self, *arguments: str) -> tuple[str, ...]:
        return ("mirror", *self.clusters, "--name", self.name, *arguments)

    def to_end(self, *arguments: str) -> dict[str, Any]:
        """Return the answer of a run to the end."""
        ended = self.run(*self.arguments("--until-end", "--json", *arguments))
        assert ended.code == 0, ended.err
        answer: dict[str, Any] = json.loads(ended.out.splitlines()[-1])
        return answer

    def refused(self, *arguments: str) -> str:
        """Return the error of a run."""
        ended = self.run(*self.arguments("--until-end", *arguments))
        assert ended.code == 1, ended.out
        return " ".join(ended.err.split())


@pytest.fixture
def mirroring(
    other_broker: BrokerProcess, embedded_broker: BrokerProcess, unique_name: Callable[[str], str], penstock_here: Run
) -> Mirroring:
    return Mirroring(other_broker, embedded_broker, unique_name("m"), penstock_here)


RECORDS = [
    Sent(0, b"\xff", b"a", 5, (("trace", b"1"), ("trace", None))),
    Sent(0, None, None, 3),
    Sent(2, b"k", b"", 7),
]


def test_records_are_mirrored_once_as_they_are(
    mirroring: Mirroring, source: Topics, target: Topics, unique_name: Callable[[str], str]
) -> None:
    name = source.create(unique_name("t"), 3, **{"retention.ms": "-1", "segment.bytes": "1048576"})
    source.write(name, RECORDS)
    answer = mirroring.to_end("--topics", name)
    topic = {"source": name, "target": name, "partitions": 3, "records": 3, "lag": 0}
    assert answer == {"topics": [topic], "records": 3}
    assert target.read(name) == RECORDS
    created = target.admin.describe_topic(name)
    assert len(created.partitions) == 3
    assert {key: created.config[key] for key in created.overrides} == {
        "retention.ms": "-1",
        "segment.bytes": "1048576",
        "message.timestamp.type": "CreateTime",
    }
    assert mirroring.to_end("--topics", name)["records"] == 0
    source.write(name, [Sent(1, b"late", b"b", 1)])
    assert mirroring.to_end("--topics", name)["records"] == 1
    assert target.read(name) == [*RECORDS[:2], Sent(1, b"late", b"b", 1), RECORDS[2]]


def test_in_json_each_status_is_a_line_and_the_last_one_says_what_failed(
    mirroring: Mirroring, source: Topics, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_mirror, "_STATUS_SECONDS", 0.0)
    name = source.create(unique_name("t"), 3)
    source.write(name, RECORDS)
    lines = mirroring.run(*mirroring.arguments("--topics", name, "--until-end", "--json")).out.splitlines()
    assert len(lines) > 1
    counts = [json.loads(line)["records"] for line in lines]
    assert (counts, counts[-1]) == (sorted(counts), 3)
    unknown = mirroring.run(*mirroring.arguments("--topics", f"{name}-unknown", "--until-end", "--json"))
    assert unknown.code == 1
    assert f"{name}-unknown" in json.loads(unknown.out.splitlines()[-1])["error"]


def test_topics_are_chosen_by_patterns_and_named_by_prefix_and_renaming(
    mirroring: Mirroring, source: Topics, target: Topics, unique_name: Callable[[str], str]
) -> None:
    group, west = unique_name("g"), unique_name("w")
    for suffix in ("a", "b", "c", "ca"):
        source.write(source.create(f"{group}.{suffix}"), [Sent(0, None, suffix.encode(), 1)])
    names = ("--topics", f"{group}[.](a|b|c)", "--exclude", f"{group}.b")
    told = mirroring.run(
        *mirroring.arguments(*names, "--until-end", "--prefix", f"{west}.", "--rename", f"{group}.c={west}-c")
    )
    assert told.code == 0, told.err
    assert "Mirrored 2 records of 2 topics." in told.out
    made = {name for name in target.admin.topics() if west in name}
    assert made == {f"{west}.{group}.a", f"{west}-c"}
    assert [each.value for name in sorted(made) for each in target.read(name)] == [b"c", b"a"]


def test_a_topic_of_the_target_gets_the_partitions_that_it_lacks(
    mirroring: Mirroring, source: Topics, target: Topics, unique_name: Callable[[str], str]
) -> None:
    name = source.create(unique_name("t"), 3)
    target.create(name, 1)
    source.write(name, RECORDS)
    mirroring.to_end("--topics", name)
    assert target.read(name) == RECORDS


def test_aborted_and_open_transactions_are_not_mirrored(
    mirroring: Mirroring,
    source: Topics,
    target: Topics,
    other_broker: BrokerProcess,
    unique_name: Callable[[str], str],
) -> None:
    name = source.create(unique_name("t"))
    with ProtocolClient(other_broker.bootstrap_servers) as client:
        for number, is_commit in enumerate((False, True, None)):
            transaction = Transactions(client, f"{name}-{number}")
            transaction.find_coordinator()
            transaction.begin()
            transaction.add(name, 0)
            transaction.produce(name, 0, str(number).encode())
            if is_commit is not None:
                transaction.end(is_commit=is_commit)
        assert mirroring.to_end("--topics", name)["records"] == 1
        assert [each.value for each in target.read(name)] == [b"1"]
        transaction.end(is_commit=True)
    mirroring.to_end("--topics", name)
    assert [each.value for each in target.read(name)] == [b"1", b"2"]


@pytest.mark.slow
def test_new_topics_and_partitions_are_mirrored_while_it_runs(
    mirroring: Mirroring, source: Topics, target: Topics, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    group = unique_name("g")
    first = source.create(f"{group}-1")
    source.write(first, [Sent(0, None, b"a", 1)])
    arguments = mirroring.arguments("--topics", f"{group}-.*", "--refresh", "0.1", "--json")
    with Command(arguments, tmp_path) as command:
        assert until(lambda: first in target.admin.topics() and len(target.read(first)) == 1)
        source.admin.create_partitions(first, 2)
        second = source.create(f"{group}-2")
        source.write(first, [Sent(1, None, b"b", 2)])
        source.write(second, [Sent(0, None, b"c", 3)])
        assert until(lambda: second in target.admin.topics() and len(target.read(second)) == 1), command.output()
        assert until(lambda: len(target.read(first)) == 2), command.output()
        source.admin.delete_topics([second])
        source.write(first, [Sent(0, None, b"d", 4)])
        assert until(lambda: len(target.read(first)) == 3), command.output()
        command.interrupt()
        ended = command.ended()
    assert ended.code == 130
    told = json.loads(ended.out.splitlines()[-1])
    assert [(topic["source"], topic["partitions"], topic["records"]) for topic in told["topics"]] == [
        (first, 2, 3),
        (second, 1, 1),
    ]


@pytest.mark.slow
def test_a_second_mirror_of_a_name_stops_the_first_one(
    mirroring: Mirroring, source: Topics, target: Topics, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = source.create(unique_name("t"))
    source.write(name, [Sent(0, None, b"a", 1)])
    with Command(mirroring.arguments("--topics", name), tmp_path) as command:
        assert until(lambda: name in target.admin.topics() and len(target.read(name)) == 1), command.output()
        mirroring.to_end("--topics", name)
        source.write(name, [Sent(0, None, b"b", 2)])
        ended = command.ended()
    assert ended.code == 1
    assert "fenced" in ended.err
    mirroring.to_end("--topics", name)
    assert [each.value for each in target.read(name)] == [b"a", b"b"]


def test_a_mirror_does_not_go_back(
    mirroring: Mirroring, source: Topics, target: Topics, unique_name: Callable[[str], str]
) -> None:
    name, only_there = unique_name("t"), unique_name("t")
    source.write(source.create(name), [Sent(0, None, b"a", 1)])
    target.write(target.create(only_there), [Sent(0, None, b"b", 1)])
    mirroring.to_end("--topics", name)
    back = Mirroring.__new__(Mirroring)
    back.clusters, back.name, back.run = mirroring.back, f"{mirroring.name}-back", mirroring.run
    refused = back.refused("--topics", name)
    assert f"Topic {name} is itself the mirror of a topic of the target cluster" in refused
    assert f"penstock-mirror-{mirroring.name}" in refused
    assert back.to_end("--topics", f"({name}|{only_there})")["topics"][0]["source"] == only_there
    assert [each.value for each in source.read(name)] == [b"a"]


def test_a_topic_of_the_same_cluster_needs_another_name(
    mirroring: Mirroring, source: Topics, unique_name: Callable[[str], str]
) -> None:
    name = source.create(unique_name("t"))
    source.write(name, [Sent(0, None, b"a", 1)])
    servers = mirroring.clusters[1]
    mirroring.clusters = ("--from", servers, "--to", servers)
    assert f"Topic {name} would be mirrored to itself" in mirroring.refused("--topics", name)
    for _ in range(2):
        told = mirroring.to_end("--topics", f"(copy-)*{name}", "--prefix", "copy-")
        assert [topic["source"] for topic in told["topics"]] == [name]
    assert [each.value for each in source.read(f"copy-{name}")] == [b"a"]


def test_what_cannot_be_mirrored_is_named(
    mirroring: Mirroring, source: Topics, unique_name: Callable[[str], str]
) -> None:
    one, other, missing = source.create(unique_name("t")), source.create(unique_name("t")), unique_name("t")
    assert f"There is no topic '{missing}'" in mirroring.refused("--topics", missing)
    refused = mirroring.refused("--topics", one, "--topics", other, "--rename", f"{one}={other}")
    assert f"would both be mirrored to {other}" in refused
    assert "'(' is neither the name of a topic nor a pattern" in mirroring.refused("--topics", "(")


@pytest.mark.slow
def test_brokers_that_are_killed_and_come_back_are_mirrored_further(
    mirroring: Mirroring, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    brokers = [BrokerProcess(tmp_path / side, arguments=KEEPS_RECORDS) for side in ("source", "target")]
    with brokers[0], brokers[1], Topics(brokers[0].bootstrap_servers) as source:
        name = source.create(unique_name("t"))
        mirroring.clusters = ("--from", brokers[0].bootstrap_servers, "--to", brokers[1].bootstrap_servers)
        with Command(mirroring.arguments("--topics", name, "--refresh", "1"), tmp_path) as command:
            for number, killed in enumerate((brokers[1], brokers[0], None)):
                source.write(name, [Sent(0, None, str(number).encode(), 1)])
                with Topics(brokers[1].bootstrap_servers) as target:
                    has_arrived = partial(_has_values, target, name, number + 1)
                    assert until(has_arrived), command.output()
                    assert [each.value for each in target.read(name)] == [str(n).encode() for n in range(number + 1)]
                if killed is not None:
                    killed.kill()
                    killed.start()


def _has_values(topics: Topics, name: str, count: int) -> bool:
    return name in topics.admin.topics() and len(topics.read(name)) >= count


@pytest.mark.slow
def test_an_address_without_a_broker_is_not_tried_again(mirroring: Mirroring) -> None:
    mirroring.clusters = ("--from", f"127.0.0.1:{free_port()}", *mirroring.clusters[2:])
    refused = mirroring.refused("--topics", "t")
    assert "No broker" in refused
    assert "begins again" not in refused


def test_topics_that_are_created_again_are_mirrored_from_their_beginning(
    mirroring: Mirroring, source: Topics, target: Topics, unique_name: Callable[[str], str]
) -> None:
    name = source.create(unique_name("t"))
    source.write(name, [Sent(0, None, b"a", 1)])
    mirroring.to_end("--topics", name)
    source.admin.delete_topics([name])
    source.write(source.create(name), [Sent(0, None, b"b", 1)])
    mirroring.to_end("--topics", name)
    assert [each.value for each in target.read(name)] == [b"a", b"b"]
    target.admin.delete_topics([name])
    mirroring.to_end("--topics", name)
    assert [each.value for each in target.read(name)] == [b"b"]


def test_records_that_the_source_has_deleted_are_reported(
    mirroring: Mirroring, source: Topics, target: Topics, unique_name: Callable[[str], str]
) -> None:
    name = source.create(unique_name("t"))
    source.write(name, [Sent(0, None, b"a", 1)])
    mirroring.to_end("--topics", name)
    source.write(name, [Sent(0, None, b"b", 1), Sent(0, None, b"c", 1)])
    source.admin.delete_records({(place := source.place(name)): 2})
    ended = mirroring.run(*mirroring.arguments("--topics", name, "--until-end"))
    assert f"{place} of the source has lost the offsets 1 to 1" in ended.err
    assert [each.value for each in target.read(name)] == [b"a", b"c"]


@pytest.mark.crash
def test_a_kill_at_any_step_loses_and_doubles_nothing(
    mirroring: Mirroring, source: Topics, target: Topics, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = source.create(unique_name("t"), 3)
    orders = [*TRANSFER_POINTS, *(f"{point}@1" for point in TRANSFER_POINTS[1:])]
    struck = tmp_path / "struck"
    struck.mkdir()
    environment = {"PENSTOCK_CRASH_POINTS": " ".join(orders), "PENSTOCK_CRASH_DIRECTORY": str(struck)}
    written = [Sent(number % 3, None, str(number).encode(), number + 1) for number in range(30_000)]
    source.write(name, written)
    arguments = mirroring.arguments("--topics", name, "--until-end")
    codes = [penstock(tmp_path, *arguments, **environment).code for _ in range(len(orders) + 1)]
    assert codes == [-9] * len(orders) + [0]
    assert mirroring.to_end("--topics", name)["topics"][0]["lag"] == 0
    assert target.read(name) == sorted(written, key=lambda record: record.partition)
