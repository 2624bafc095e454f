"""The life of a comparison: its end offsets, what it leaves behind, and what it refuses."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Named, StreamsBuilder, Topology
from penstock.config import StreamsConfig
from penstock.errors import LockError, StreamsError, TopologyError
from penstock.record import TopicPartition
from penstock.shadow import Counts, ShadowOptions
from penstock.shadow.comparing import VersionComparing
from penstock.shadow.pair import ShadowPair
from penstock_broker.process import BrokerProcess
from tests.host.support import lines
from tests.host.test_topologies import TEXT, TEXT_OUT, word_count
from tests.host.threads.runner import ThreadsRunner


@pytest.fixture
def runner(embedded_broker: BrokerProcess, tmp_path: Path) -> Iterator[ThreadsRunner]:
    found = ThreadsRunner(embedded_broker.bootstrap_servers, tmp_path)
    yield found
    found.close()


@pytest.fixture
def topics(runner: ThreadsRunner, unique_name: Callable[[str], str]) -> tuple[str, str]:
    source, target = unique_name("in"), unique_name("out")
    runner.create_topics({source: 1, target: 1})
    runner.write(source, lines(["a b", "b"]))
    return source, target


@pytest.fixture
def config(runner: ThreadsRunner, unique_name: Callable[[str], str]) -> StreamsConfig:
    return runner.config(unique_name("app"))


def left(runner: ThreadsRunner, config: StreamsConfig) -> list[str]:
    """Return the topics, groups and files of a comparison."""
    shadow = f"{config['application.id']}-shadow"
    directory = f"{config['application.id']}~shadow"
    groups = [each.group_id for each in runner.admin.groups() if each.group_id.startswith(shadow)]
    files = [path.name for path in Path(config["state.dir"]).glob(f"{directory}/*") if path.name != "lock"]
    return [*(topic for topic in runner.admin.topics() if topic.startswith(shadow)), *groups, *files]


def test_a_failed_version_is_named_and_leaves_nothing(
    runner: ThreadsRunner, topics: tuple[str, str], config: StreamsConfig
) -> None:
    builder = StreamsBuilder()
    builder.stream(topics[0], TEXT).map_values(lambda value: str(int(value)), Named.as_("number")).to(
        topics[1], TEXT_OUT
    )
    old, new = (word_count(*topics), config), (builder.build(), config)
    with pytest.raises(StreamsError, match="number") as raised:
        VersionComparing(ShadowPair(old, new, ShadowOptions(), runner.run)).compare()
    assert f"This was the new version of {config['application.id']}. Its outputs were held back." in str(
        raised.value.__notes__
    )
    assert left(runner, config) == []


def test_kept_outputs_stay_until_the_next_comparison(
    runner: ThreadsRunner, topics: tuple[str, str], config: StreamsConfig
) -> None:
    program, target = (word_count(*topics), config), topics[1]
    VersionComparing(ShadowPair(program, program, ShadowOptions(keeps_outputs=True), runner.run)).compare()
    kept = [f"{config['application.id']}-shadow-{name}.output.{target}" for name in ("new", "old")]
    assert sorted(left(runner, config)) == kept
    assert len(runner.read(kept[0])) == 3
    found = VersionComparing(ShadowPair(program, program, ShadowOptions(), runner.run)).compare()
    assert found.topics[0].counts == Counts(equal=3)
    assert left(runner, config) == []


def test_state_of_an_application_with_a_similar_name_stays(
    runner: ThreadsRunner, topics: tuple[str, str], config: StreamsConfig
) -> None:
    program = word_count(*topics), config
    other = Path(config["state.dir"]) / f"{config['application.id']}-shadow" / "checkpoint" / "metadata"
    other.parent.mkdir(parents=True)
    other.touch()
    VersionComparing(ShadowPair(program, program, ShadowOptions(), runner.run)).compare()
    assert other.exists()


def test_an_application_that_no_comparison_has_made_is_not_reset(
    runner: ThreadsRunner, topics: tuple[str, str], config: StreamsConfig
) -> None:
    program, name = (word_count(*topics), config), f"{config['application.id']}-shadow-new"
    stopped = runner.config(name)
    runner.run(program[0], stopped)
    before = left(runner, config)
    assert name in before
    with pytest.raises(StreamsError, match=rf"delete the application {name}, which exists already: .*group {name}"):
        VersionComparing(ShadowPair(program, program, ShadowOptions(), runner.run)).compare()
    assert left(runner, config) == before
    assert runner.admin.committed_offsets(name, [TopicPartition(topics[0], 0)])


@pytest.mark.parametrize("to_chosen", [False, True])
def test_a_pattern_that_matches_outputs_is_refused(
    runner: ThreadsRunner, topics: tuple[str, str], config: StreamsConfig, to_chosen: bool
) -> None:
    def program(pattern: str) -> tuple[Topology, StreamsConfig]:
        builder = StreamsBuilder()
        stream = builder.stream(re.compile(pattern), TEXT)
        stream.to((lambda key, value, context: topics[1]) if to_chosen else topics[1], produced=TEXT_OUT)
        return builder.build(), config

    name = str(config["application.id"])
    expected = rf"created at .*test_comparing.py.* reads .* create {name}-shadow-new\.output\..*application would read"
    with pytest.raises(TopologyError, match=expected):
        VersionComparing(
            ShadowPair(program(topics[0]), program(f"{topics[0]}|{name}.*"), ShadowOptions(), runner.run)
        ).compare()
    assert left(runner, config) == []
    equal = program(f"{topics[0]}.*")
    assert VersionComparing(ShadowPair(equal, equal, ShadowOptions(), runner.run)).compare().is_equal


def test_effects_are_refused_before_anything_runs(
    runner: ThreadsRunner, topics: tuple[str, str], config: StreamsConfig, tmp_path: Path
) -> None:
    file = tmp_path / "seen"
    builder = StreamsBuilder()

    def note(key: object, value: object) -> None:
        file.write_text(str(value))

    builder.stream(topics[0], TEXT).peek(note, named="noted").to(topics[1], TEXT_OUT)
    program = builder.build(), config
    with pytest.raises(StreamsError, match=r"The old version has effects outside of Kafka.*\n  - noted \(created at"):
        VersionComparing(ShadowPair(program, program, ShadowOptions(), runner.run)).compare()
    assert (file.exists(), left(runner, config)) == (False, [])
    VersionComparing(ShadowPair(program, program, ShadowOptions(allows_effects=True), runner.run)).compare()
    assert file.read_text() == "b"


def test_another_comparison_of_the_application_is_refused(
    runner: ThreadsRunner, topics: tuple[str, str], config: StreamsConfig
) -> None:
    program = word_count(*topics), config

    def run(topology: Topology, each: StreamsConfig) -> None:
        VersionComparing(ShadowPair(program, program, ShadowOptions(), runner.run)).compare()

    with pytest.raises(LockError, match=f"Another comparison of {config['application.id']} runs on this machine"):
        VersionComparing(ShadowPair(program, program, ShadowOptions(), run)).compare()
    assert left(runner, config) == []


KILLED = """
import os, signal, sys
from penstock.shadow import compare, ShadowOptions
from penstock.streams import KafkaStreams
from tests.host.test_topologies import word_count
from penstock.shadow.comparing import VersionComparing
from penstock.shadow.pair import ShadowPair

def run(topology, config):
    KafkaStreams(topology, config).run_to_end()
    print("ran", flush=True)
    os.kill(os.getpid(), getattr(signal, sys.argv[5]))
    signal.pause()

config = {"application.id": sys.argv[1], "bootstrap.servers": sys.argv[2], "penstock.host": "threads",
          "state.dir": sys.argv[6], "session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}
program = word_count(sys.argv[3], sys.argv[4]), config
VersionComparing(ShadowPair(program, program, ShadowOptions(), run)).compare()
"""


@pytest.mark.parametrize(("ended_by", "leaves"), [("SIGKILL", True), ("SIGTERM", False), ("SIGINT", False)])
def test_a_killed_comparison_is_cleaned_up(
    runner: ThreadsRunner, topics: tuple[str, str], config: StreamsConfig, ended_by: str, leaves: bool
) -> None:
    name, servers = str(config["application.id"]), runner.bootstrap_servers
    arguments = [name, servers, *topics, ended_by, str(config["state.dir"])]
    ended = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False)
    assert "ran" in ended.stdout, ended.stderr
    assert ended.returncode not in (0, 1) or ended_by == "SIGINT", ended.stderr
    assert bool(left(runner, config)) == leaves
    other = StreamsBuilder()
    other.stream(topics[0], TEXT).to(topics[1], produced=TEXT_OUT)
    program = other.build(), config
    assert VersionComparing(ShadowPair(program, program, ShadowOptions(), runner.run)).compare().is_equal
    assert left(runner, config) == []
