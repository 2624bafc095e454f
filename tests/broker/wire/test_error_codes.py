"""The error codes of the protocol, compared with those of kio."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from penstock_broker.wire.error_codes import ErrorCode


def test_the_error_codes_of_kio_are_among_those_of_kafka() -> None:
    found = {(code.name, code.value, code.retriable) for code in ErrorCode}
    assert found >= {(code.name, code.value, code.retriable) for code in KioErrorCode}
