"""The error codes of the protocol, compared with those of kio."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from penstock_broker.wire.error_codes import ErrorCode


def test_error_codes_are_those_of_kio() -> None:
    found = {code.name: (code.value, code.retriable) for code in ErrorCode}
    assert found == {code.name: (code.value, code.retriable) for code in KioErrorCode}
