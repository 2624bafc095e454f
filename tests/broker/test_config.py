"""The settings of a broker, and the values that it refuses."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from penstock_broker.config import BrokerConfig
from penstock_broker.errors import BrokerError
from penstock_broker.topic_config import check_topic_configs


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "::", "example.org", ""])
def test_an_address_that_others_can_reach_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(BrokerError, match="has no access control"):
        BrokerConfig(data_dir=tmp_path, host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_address_is_taken(tmp_path: Path, host: str) -> None:
    assert BrokerConfig(data_dir=tmp_path, host=host).host == host


@pytest.mark.parametrize("setting", ["num_partitions", "segment_bytes", "max_request_bytes", "max_partitions"])
def test_a_setting_that_cannot_be_is_refused(tmp_path: Path, setting: str) -> None:
    wrong: dict[str, int] = {setting: 0}
    with pytest.raises(BrokerError, match=f"{setting} is 0"):
        BrokerConfig(data_dir=tmp_path, **wrong)  # type: ignore[arg-type]  # one of several names of the same type


UNLIMITED = {"min_free_bytes"}
"""Settings of a number that may be anything."""


@pytest.mark.parametrize(
    "name", [field.name for field in fields(BrokerConfig) if field.type == "int" and field.name not in UNLIMITED]
)
def test_every_number_has_a_lower_bound_and_the_error_names_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(BrokerError, match=rf"^{name} (is )?-2"):
        BrokerConfig(data_dir=tmp_path, **{name: -2})


@pytest.mark.parametrize("name", ["port", "schema_registry_port"])
def test_a_port_has_16_bits(tmp_path: Path, name: str) -> None:
    for port in (0, 65_535):
        assert getattr(BrokerConfig(data_dir=tmp_path, **{name: port}), name) == port
    with pytest.raises(BrokerError, match="port 65536 is not between 0"):
        BrokerConfig(data_dir=tmp_path, **{name: 65_536})


def test_topics_have_the_defaults_that_differ_from_those_of_kafka(tmp_path: Path) -> None:
    assert BrokerConfig(data_dir=tmp_path).topic_defaults == {"segment.bytes": "268435456", "retention.ms": "-1"}
    forced = BrokerConfig(data_dir=tmp_path, log_flush_interval_messages=1, log_retention_ms=0, segment_bytes=1 << 20)
    assert forced.topic_defaults == {"segment.bytes": "1048576", "retention.ms": "0", "flush.messages": "1"}
    assert check_topic_configs(dict(forced.topic_defaults), {})
