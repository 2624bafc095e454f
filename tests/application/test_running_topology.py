"""The interface to a running topology: its metrics before, while and after it runs, and which queries it takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import penstock
from penstock import Consumed, KafkaStreams, Materialized, Serdes, State, StateQueryRequest, StreamsBuilder
from penstock.errors import StreamsError, StreamsNotStartedError, StreamsStoppedError
from penstock.state.query.metadata import HostInfo, StreamsMetadata
from penstock.state.query.queries import KeyQuery
from penstock.state.query.queryable import QueryableStoreTypes, StoreQueryParameters
from penstock.task.taps import TappedRecord
from tests.metrics.test_host_metrics import values
from tests.test_streams import CONFIG, TestHost, host, running, topology

__all__ = ["host"]


def test_an_application_says_what_it_is_before_it_runs() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    config = {"application.id": "app", "client.id": "me", "bootstrap.servers": "b:1"}
    streams = KafkaStreams(builder.build(), {**config, "metrics.recording.level": "DEBUG"})
    found = values(streams.metrics())
    description = found.pop(("stream-metrics", "topology-description"))
    assert found == {
        ("stream-metrics", "version"): penstock.__version__,
        ("stream-metrics", "application-id"): "app",
        ("stream-metrics", "state"): "CREATED",
        ("stream-metrics", "client-state"): 0,
        ("stream-metrics", "alive-stream-threads"): 0,
        ("stream-metrics", "failed-stream-threads"): 0,
        ("stream-metrics", "recording-level"): 1,
        ("stream-thread-metrics", "thread-state"): 0,
    }
    assert "Source: KSTREAM-SOURCE-0000000000 (topics: [in])" in str(description)
    streams.close()
    ended = values(streams.metrics())
    assert ended["stream-metrics", "client-state"] == list(State).index(State.NOT_RUNNING) == 4
    assert ended["stream-thread-metrics", "thread-state"] == 6  # DEAD


class Answers:
    """Answers queries with what it was asked."""

    def store(self, parameters: StoreQueryParameters) -> StoreQueryParameters:
        return parameters


def test_stores_are_read_while_the_application_runs(host: TestHost) -> None:
    host.answers = Answers()
    asked = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    with pytest.raises(StreamsNotStartedError, match="has not been started, you can retry after calling start"):
        KafkaStreams(topology(), CONFIG).store(asked)
    streams = running(host)
    assert streams.store(asked) == asked
    host.told().on_rebalancing()
    assert streams.store(asked.with_partition(1)).partition == 1
    streams.close()
    with pytest.raises(RuntimeError, match="KafkaStreams is not running"):
        streams.store(asked)


def test_a_query_that_is_no_query_is_refused_with_what_to_write() -> None:
    builder = StreamsBuilder()
    text = Consumed.with_(Serdes.string(), Serdes.string())
    builder.stream("in", text).group_by_key().count(Materialized.as_("counts"))
    streams: Any = KafkaStreams(builder.build(), {"application.id": "a", "penstock.host": "threads"})
    name, uncalled = "counts", cast("Any", QueryableStoreTypes.key_value_store)
    with pytest.raises(TypeError, match=r"got 'counts': write StoreQueryParameters.from_name_and_type\("):
        streams.store(name)
    with pytest.raises(TypeError, match=r"write StateQueryRequest.in_store\(\"counts\"\).with_query\("):
        streams.query(StateQueryRequest.in_store(name))
    with pytest.raises(TypeError, match=r"call it, such as QueryableStoreTypes.key_value_store\(\)"):
        StoreQueryParameters.from_name_and_type(name, uncalled)


@pytest.mark.parametrize(
    ("report", "state", "alive", "thread"),
    [
        ("on_rebalancing", State.REBALANCING, 1, 3),
        ("on_running", State.RUNNING, 1, 4),
        ("on_stopped", State.NOT_RUNNING, 0, 6),
    ],
)
def test_metrics_follow_the_state(host: TestHost, report: str, state: State, alive: int, thread: int) -> None:
    streams = running(host)
    getattr(host.told(), report)()
    found = {name.name: metric.metric_value for name, metric in streams.metrics().items()}
    assert (found["state"], found["client-state"]) == (state.value, list(State).index(state))
    assert (found["alive-stream-threads"], found["thread-state"]) == (alive, thread)
    streams.close()


def test_an_application_that_has_ended_answers_no_query(host: TestHost) -> None:
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a"))
    streams = running(host)
    streams.close()
    with pytest.raises(StreamsStoppedError, match=r"has been stopped \(NOT_RUNNING\)"):
        streams.query(request)


def test_programs_are_found_by_the_names_of_their_stores(host: TestHost) -> None:
    one, other = (
        StreamsMetadata(HostInfo("a", port), frozenset(stores), frozenset()) for port, stores in ((1, "xy"), (2, "y"))
    )
    host.answers = SimpleNamespace(streams_metadata=lambda: [one, other])
    streams = running(host)
    assert streams.streams_metadata_for_store("x") == [one]
    assert streams.streams_metadata_for_store("y") == [one, other]
    assert streams.streams_metadata_for_store("z") == []
    streams.close()


def test_a_node_has_one_open_tap(host: TestHost) -> None:
    record = TappedRecord("k", "v", 5, (), "0_0", "in", 0, 7, 5)
    host.taps["source"] = [record]
    streams = running(host)
    assert streams.tapped("source") is None
    first = streams.tap("source")
    second = streams.tap("source")
    assert (first.is_open, second.is_open) == (False, True)
    assert streams.tapped("source") == [record]
    streams.untap("source")
    streams.untap("sink")
    assert streams.tapped("source") is None
    streams.close()


def test_a_tap_names_the_nodes_that_there_are(host: TestHost) -> None:
    streams = running(host)
    with pytest.raises(StreamsError, match=r"^The topology has no node 'x'\. It has: source, sink\.$"):
        streams.tap("x")
    with pytest.raises(ValueError, match=r"^n must be 1 or more, got 0\.$"):
        streams.tap("source", n=0)
    streams.close()


@pytest.mark.parametrize("wrong", [{"refresh_ms": 0}, {"rows": 0}])
def test_a_view_without_rows_or_time_is_refused(host: TestHost, wrong: dict[str, int]) -> None:
    streams = running(host)
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be 1 or more, got 0"):
        streams.view("counts", **wrong)
    streams.close()
