"""The settings of a broker, and the values that it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.config import BrokerConfig
from penstock_broker.errors import BrokerError


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
