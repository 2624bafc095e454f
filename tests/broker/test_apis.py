"""The table of APIs: its versions, and those that are documented and announced."""

from __future__ import annotations

import re
import struct

import penstock_broker
from penstock_broker.apis import APIS
from penstock_broker.faults import api_name
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import API_VERSIONS, PRODUCE
from tests.support.protocol_client import ProtocolClient, versions_of


def test_the_documented_versions_are_those_of_the_table() -> None:
    assert penstock_broker.__doc__ is not None
    found = re.findall(r"([A-Z]\w+) (\d+)-(\d+)", penstock_broker.__doc__)
    documented = {name: (int(low), int(high)) for name, low, high in found}
    assert documented == {api_name(key): (api.min_version, api.max_version) for key, api in APIS.items()}
    assert len(found) == len(APIS)


def test_the_advertised_versions_are_those_of_the_table(client: ProtocolClient) -> None:
    for version in versions_of(API_VERSIONS):
        answer = client.call(API_VERSIONS, version, {"client_software_name": "test", "client_software_version": "1"})
        found = {one["api_key"]: (one["min_version"], one["max_version"]) for one in answer["api_keys"]}
        assert found == {key: (api.advertised_min, api.max_version) for key, api in APIS.items()}
    assert found[PRODUCE] == (0, 12)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: ProtocolClient) -> None:
    client.send_frame(struct.pack(">hhih", API_VERSIONS, 99, 1, -1) + b"\x00\x01\x02")
    answer = client.receive_frame()
    assert struct.unpack_from(">ihi", answer) == (1, ErrorCode.unsupported_version, len(APIS))
