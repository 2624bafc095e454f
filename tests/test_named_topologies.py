"""Named topologies over hosts that do what the test tells them: adding, removing, pausing, errors, states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from penstock import (
    Consumed,
    HostInfo,
    KafkaStreamsNamedTopologyWrapper,
    LagInfo,
    NamedTopology,
    QueryableStoreTypes,
    Serde,
    Serdes,
    State,
    StateQueryRequest,
    StoreQueryParameters,
    StreamsMetadata,
    StreamThreadExceptionResponse,
)
from penstock.config import StreamsConfig
from penstock.errors import (
    ConfigError,
    MissingSourceTopicError,
    StreamsError,
    StreamsNotStartedError,
    TopologyError,
    UnknownTopologyError,
)
from penstock.host.supervision.turns import ApplicationTurns
from penstock.lake import Delta
from penstock.metrics import Metric, MetricName
from penstock.notebook import HTML, TEXT
from penstock.plan.subtopology import BuiltTopology
from penstock.state.restore_listener import StateRestoreListener
from tests.support.ports import free_port
from tests.test_notebook import forms
from tests.test_streams import CONFIG, TestHost

REPLACE = StreamThreadExceptionResponse.REPLACE_THREAD
END = StreamThreadExceptionResponse.SHUTDOWN_CLIENT


class Hosts:
    """Makes hosts and keeps them by the application.id that they were opened with, the newest of each."""

    def __init__(self) -> None:
        self.by_id: dict[str, TestHost] = {}
        self.configs: dict[str, StreamsConfig] = {}
        self.turns: list[ApplicationTurns] = []
        self.refusal: StreamsError | None = None
        self.opening: Callable[[], object] = lambda: None
        """Called before a host is made."""

    def open(
        self,
        built: BuiltTopology,
        config: StreamsConfig,
        session: Any,
        until_end: bool = False,
        restore_listener: StateRestoreListener | None = None,
        turns: ApplicationTurns | None = None,
    ) -> TestHost:
        self.opening()
        if turns is not None:
            self.turns.append(turns)
        host = TestHost().open(built, config, session, until_end, restore_listener)
        host.refusal = self.refusal
        name = config.required("application.id")
        self.by_id[name], self.configs[name] = host, config
        return host

    def __getitem__(self, name: str) -> TestHost:
        return self.by_id[f"app-{name}"]


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    hosts = Hosts()
    monkeypatch.setattr("penstock.named_topologies.open_host", hosts.open)
    return hosts


@pytest.fixture
def streams(hosts: Hosts) -> Iterator[KafkaStreamsNamedTopologyWrapper]:
    streams = KafkaStreamsNamedTopologyWrapper(CONFIG)
    yield streams
    streams.close()


def named(streams: KafkaStreamsNamedTopologyWrapper, name: str, **overrides: Any) -> NamedTopology:
    builder = streams.new_named_topology_builder(name, overrides or None)
    builder.stream(f"{name}-in", consumed=Consumed.as_("source")).to(f"{name}-out")
    return builder.build()


def started(streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts, *names: str) -> None:
    streams.start([named(streams, name) for name in names])
    for name in names:
        hosts[name].told().on_running()


def test_each_topology_runs_as_a_separate_application(streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts) -> None:
    started(streams, hosts, "a", "b")
    assert streams.state() is State.RUNNING
    assert sorted(hosts.by_id) == ["app-a", "app-b"]
    assert hosts["b"].built.subtopologies[0].source_topics == ("b-in",)
    assert (streams.statistics()["records_in"], streams.statistics()["lag"]) == (14, 4)
    topologies = streams.statistics()["topologies"]
    assert {name: (each["records_in"], each["lag"]) for name, each in topologies.items()} == {"a": (7, 2), "b": (7, 2)}


def test_a_named_topology_with_a_table_of_a_lake_is_refused(streams: KafkaStreamsNamedTopologyWrapper) -> None:
    builder = streams.new_named_topology_builder("a")
    builder.stream("in").to_lake(Delta("/lake/orders"))
    with pytest.raises(TopologyError, match="Topology a writes to a table of a lake, which only KafkaStreams does"):
        streams.start([builder.build()])


def test_the_whole_runs_when_all_do(streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts) -> None:
    streams.start([named(streams, "a"), named(streams, "b")])
    hosts["a"].told().on_running()
    assert streams.state() is State.REBALANCING
    hosts["b"].told().on_running()
    assert streams.state() is State.RUNNING
    hosts["a"].told().on_rebalancing()
    assert streams.state() is State.REBALANCING
    hosts["a"].told().on_running()
    assert streams.state() is State.RUNNING


def test_metrics_and_states_can_be_read_while_the_hosts_are_made(
    streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts
) -> None:
    """Pages and metrics are served from the beginning of a start."""
    seen = []
    hosts.opening = lambda: seen.append((streams.running_topology("a").state(), bool(streams.metrics())))
    streams.start([named(streams, "a")])
    assert seen == [(State.REBALANCING, True)]


def test_topologies_come_and_go_while_others_run(streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts) -> None:
    started(streams, hosts, "a")
    first = hosts["a"]
    assert streams.add_named_topology(named(streams, "b")).all().result() is None
    hosts["b"].told().on_running()
    assert streams.state() is State.RUNNING
    second = hosts["b"]
    streams.remove_named_topology("b").all().result()
    assert len(second.closed_with) == 1
    assert first.closed_with == []
    assert [topology.name() for topology in streams.get_all_topologies()] == ["a"]
    streams.add_named_topology(named(streams, "b")).all().result()
    assert hosts["b"] is not second


def test_what_cannot_be_changed_is_the_error_of_the_result(
    streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts
) -> None:
    started(streams, hosts, "a")
    twice = streams.add_named_topology(named(streams, "a"))
    assert isinstance(twice.exception_now(), ValueError)
    with pytest.raises(UnknownTopologyError, match="no topology c; it has: a"):
        streams.remove_named_topology("c").all().result()
    hosts.refusal = MissingSourceTopicError("no topic")
    refused = streams.add_named_topology(named(streams, "b"))
    assert isinstance(refused.exception_now(), MissingSourceTopicError)
    assert streams.get_topology_by_name("b") is None
    assert streams.state() is State.RUNNING
    streams.close()
    with pytest.raises(RuntimeError, match="while the state is NOT_RUNNING"):
        streams.remove_named_topology("a").all().result()


def test_a_start_with_a_topology_that_must_not_start_is_an_error(
    streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts
) -> None:
    hosts.refusal = MissingSourceTopicError("no topic")
    with pytest.raises(MissingSourceTopicError):
        streams.start(named(streams, "a"))
    assert streams.state() is State.ERROR


def test_an_application_may_start_without_topologies(streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts) -> None:
    streams.start()
    assert streams.state() is State.RUNNING
    streams.add_named_topology(named(streams, "a")).all().result()
    hosts["a"].told().on_running()
    assert streams.state() is State.RUNNING


def test_a_pause_is_that_of_one_topology_or_of_all(streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts) -> None:
    started(streams, hosts, "a", "b")
    streams.pause_named_topology("a")
    assert streams.is_named_topology_paused("a")
    assert not streams.is_paused()
    assert hosts["a"].calls == ["start", "pause"]
    assert hosts["b"].calls == ["start"]
    streams.pause()
    assert streams.is_paused()
    assert hosts["b"].calls == ["start", "pause"]
    streams.resume_named_topology("b")
    assert not streams.is_paused()
    assert streams.is_named_topology_paused("a")
    streams.add_named_topology(named(streams, "c")).all().result()
    assert not streams.is_named_topology_paused("c")
    with pytest.raises(UnknownTopologyError):
        streams.pause_named_topology("d")


def test_a_topology_may_begin_with_a_pause(streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts) -> None:
    streams.add_named_topology(named(streams, "a")).all().result()
    streams.pause_named_topology("a")
    streams.start(named(streams, "b"))
    assert hosts["a"].calls == ["pause", "start"]
    assert hosts["b"].calls == ["start"]


def test_an_error_in_one_topology_ends_all(streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts) -> None:
    asked: list[BaseException] = []
    streams.set_uncaught_exception_handler(lambda error: (asked.append(error), END)[1])
    started(streams, hosts, "a", "b")
    hosts["a"].fails(StreamsError("a lambda failed"))
    assert "in the named topology a" in asked[0].__notes__
    assert len(hosts["b"].closed_with) == 1
    assert streams.state() is State.ERROR
    hosts["b"].told().on_error(StreamsError("another"))
    with pytest.raises(StreamsError, match="a lambda failed"):
        streams.await_termination(0)


def test_a_restart_is_that_of_the_one_topology(streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts) -> None:
    streams.set_uncaught_exception_handler(lambda _: REPLACE)
    started(streams, hosts, "a", "b")
    assert hosts["a"].told().on_failure(StreamsError("a lambda failed")) is REPLACE
    assert hosts["b"].closed_with == []
    assert streams.state() is State.RUNNING
    metrics = streams.metrics().items()
    errors = {
        name.tags["client-id"]: each.metric_value for name, each in metrics if name.name == "failed-stream-threads"
    }
    assert [errors[client] for client in sorted(errors)] == [1, 0]


def test_checkpoints_are_apart_and_one_can_be_reset(hosts: Hosts) -> None:
    streams = KafkaStreamsNamedTopologyWrapper({**CONFIG, "penstock.checkpoint.dir": "/checkpoints/"})
    started(streams, hosts, "a")
    assert hosts.configs["app-a"].checkpoint_directory() == "/checkpoints/a"
    streams.remove_named_topology("a", reset_offsets=True).all().result()
    assert hosts["a"].calls == ["reset"]
    streams.clean_up_named_topology("a")
    assert hosts["a"].calls == ["clean_up"]
    streams.add_named_topology(named(streams, "a")).all().result()
    with pytest.raises(RuntimeError, match="active NamedTopology"):
        streams.clean_up_named_topology("a")
    streams.close()


def test_a_topology_may_have_its_own_configuration(streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts) -> None:
    streams.start(named(streams, "a", **{"statestore.cache.max.bytes": 5}))
    assert hosts.configs["app-a"]["statestore.cache.max.bytes"] == 5
    with pytest.raises(ConfigError, match="cannot be set for one topology"):
        streams.new_named_topology_builder("b", {"num.partitions": 2})


def test_names_are_those_of_kafka(streams: KafkaStreamsNamedTopologyWrapper) -> None:
    with pytest.raises(ValueError, match="__"):
        streams.new_named_topology_builder("a__b")
    topology = named(streams, "a")
    assert topology.name() == "a"
    assert topology.source_topics() == ["a-in"]
    streams.add_named_topology(named(streams, "b")).all().result()
    streams.add_named_topology(topology).all().result()
    lines = streams.get_full_topology_description().splitlines()
    assert [line for line in lines if "opolog" in line] == [
        "Topology: a:",
        "   Sub-topology: 0",
        "Topology: b:",
        "   Sub-topology: 0",
    ]


class Answers:
    """Answers queries of one topology."""

    def __init__(self, name: str) -> None:
        self.name = name

    def store(self, parameters: StoreQueryParameters) -> Any:
        return self.name, parameters.store_name

    def query(self, request: StateQueryRequest) -> Any:
        return self.name, request

    def all_local_store_partition_lags(self) -> Any:
        return {self.name: {0: LagInfo(1, 3)}}

    def streams_metadata(self) -> list[StreamsMetadata]:
        return [StreamsMetadata(HostInfo("here", 1), frozenset([self.name]), frozenset())]

    def query_metadata_for_key(
        self, store_name: str, key: Any, key_serde: Serde | None = None, partitioner: Any = None, headers: Any = ()
    ) -> Any:
        return self.name, store_name, key


def test_each_topology_is_asked_by_its_name(streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts) -> None:
    counts = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    with pytest.raises(UnknownTopologyError):
        streams.store(counts, "a")
    streams.add_named_topology(named(streams, "a")).all().result()
    with pytest.raises(StreamsNotStartedError):
        streams.store(counts, "a")
    streams.add_named_topology(named(streams, "b")).all().result()
    streams.start()
    for name in "ab":
        hosts[name].told().on_running()
        hosts[name].answers = Answers(name)
    assert streams.store(counts, "a") == ("a", "counts")
    assert streams.running_topology("b").store(counts) == ("b", "counts")
    assert streams.all_local_store_partition_lags_for_topology("b") == {"b": {0: LagInfo(1, 3)}}
    assert streams.all_streams_clients_metadata_for_topology("a")[0].state_store_names == {"a"}
    assert streams.streams_metadata_for_store("a", "b") == []
    assert len(streams.streams_metadata_for_store("b", "b")) == 1
    assert streams.query_metadata_for_key("counts", 7, None, "b") == ("b", "counts", 7)
    assert streams.running_topology("a").table("counts") == "app-a: counts"
    assert streams.running_topology("a") is streams.running_topologies()["a"]  # which knows its views and taps
    with pytest.raises(UnknownTopologyError):
        streams.running_topology("c")
    streams.close()
    with pytest.raises(RuntimeError, match="KafkaStreams is not running"):
        streams.store(counts, "a")


@pytest.mark.parametrize(("client_id", "prefix"), [("", "app"), ("me", "me")])
def test_metrics_tell_topologies_apart(hosts: Hosts, client_id: str, prefix: str) -> None:
    streams = KafkaStreamsNamedTopologyWrapper({**CONFIG, "client.id": client_id})
    started(streams, hosts, "a", "b")
    hosts["b"].told().on_rebalancing()

    def states(metrics: Mapping[MetricName, Metric]) -> dict[str, Any]:
        return {name.tags["client-id"]: metric.metric_value for name, metric in metrics.items() if name.name == "state"}

    assert states(streams.metrics()) == {f"{prefix}-a": "RUNNING", f"{prefix}-b": "REBALANCING"}
    assert states(streams.running_topology("a").metrics()) == {f"{prefix}-a": "RUNNING"}
    assert hosts.configs["app-a"].client_id() == f"{prefix}-a"
    of_a = {name.name: metric.metric_value for name, metric in streams.running_topology("a").metrics().items()}
    assert of_a["application-id"] == "app-a"
    assert "topics: [a-in]" in str(of_a["topology-description"])
    streams.close()
    assert states(streams.metrics()) == {f"{prefix}-a": "NOT_RUNNING", f"{prefix}-b": "NOT_RUNNING"}


def test_prometheus_reads_the_metrics_of_all_topologies(hosts: Hosts) -> None:
    port = free_port()
    streams = KafkaStreamsNamedTopologyWrapper({**CONFIG, "penstock.metrics.prometheus.port": port})
    streams.clean_up()  # runs nothing, so it shows nothing
    started(streams, hosts, "a", "b")
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    shown = [line for line in lines if line.startswith("kafka_streams_stream_metrics_client_state{")]
    assert [line.split('"')[1] for line in shown] == ["app-a", "app-b"]
    streams.close()
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)


# ---------------------------------------- notebooks


def test_an_application_shows_its_topologies_in_a_notebook(
    streams: KafkaStreamsNamedTopologyWrapper, hosts: Hosts
) -> None:
    assert forms(streams)[TEXT].startswith("KafkaStreamsNamedTopologyWrapper app (state: CREATED, host: ")
    started(streams, hosts, "a", "b")
    hosts["b"].told().on_rebalancing()
    given = forms(streams)
    assert given.keys() == {TEXT, HTML}
    assert given[TEXT].count("Topology: ") == 2
    assert given[TEXT].endswith(streams.get_full_topology_description().rstrip())
    for name, state in (("a", State.RUNNING), ("b", State.REBALANCING)):
        topology = streams.get_topology_by_name(name)
        assert topology is not None
        assert f"<strong>Topology {name}</strong> &middot; state: <code>{state.value}</code>" in given[HTML]
        assert topology.describe().to_svg() in given[HTML]
    assert streams.close()
    assert "<code>NOT_RUNNING</code>" in forms(streams, include=[HTML])[HTML]


def test_all_topologies_share_their_turns_and_each_has_its_weight(
    hosts: Hosts, streams: KafkaStreamsNamedTopologyWrapper
) -> None:
    for name, weight in (("a", 3), ("b", 1)):
        builder = streams.new_named_topology_builder(name, {"penstock.topology.weight": weight})
        builder.stream("in", consumed=Consumed.with_(Serdes.string(), Serdes.string())).to("out")
        streams.add_named_topology(builder.build()).all().result()
    streams.start()
    assert [hosts.configs[f"app-{name}"]["penstock.topology.weight"] for name in ("a", "b")] == [3, 1]
    assert len(hosts.turns) == 2
    assert hosts.turns[0] is hosts.turns[1]
