"""Addresses and lags of state."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.record import TopicPartition
from penstock.state.query.metadata import HostInfo, LagInfo, StreamsMetadata


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [("name:80", HostInfo("name", 80)), ("::1:80", HostInfo("::1", 80)), (None, HostInfo.unavailable())],
)
def test_an_endpoint_is_a_host_and_a_port(endpoint: str | None, host: HostInfo) -> None:
    assert HostInfo.build_from_endpoint(endpoint) == host


@pytest.mark.parametrize("endpoint", ["", "name", "name:", ":80", "name:-1", "name:8o"])
def test_any_other_text_is_no_endpoint(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=rf"Invalid value '{endpoint}' for application.server: expected host:port"):
        HostInfo.build_from_endpoint(endpoint)


def test_the_placeholder_address_is_that_of_kafka() -> None:
    metadata = StreamsMetadata(HostInfo.unavailable(), frozenset("s"), frozenset([TopicPartition("t", 0)]))
    assert (metadata.host, metadata.port) == ("unavailable", -1)
    assert metadata.standby_state_store_names == metadata.standby_topic_partitions == frozenset()


@pytest.mark.parametrize(("current", "end", "lag"), [(3, 5, 2), (5, 5, 0), (6, 5, 0)])
def test_a_lag_is_never_negative(current: int, end: int, lag: int) -> None:
    assert LagInfo(current, end).offset_lag == lag
