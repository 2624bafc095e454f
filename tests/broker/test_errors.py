"""The error of a request: its code, and a message that a response has room for."""

from __future__ import annotations

import pytest

from penstock_broker.errors import ApiError, RefusedRecordsError
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import MOST_STRING


def test_an_error_without_a_message_is_named_by_its_code() -> None:
    error = ApiError(ErrorCode.invalid_record)
    assert (str(error), error.message) == ("invalid_record", None)


@pytest.mark.parametrize("character", ["a", "é", "\N{SNOWMAN}", "\N{HAMSTER FACE}"])
def test_a_message_is_cut_to_the_size_of_a_string(character: str) -> None:
    error = ApiError(ErrorCode.invalid_config, character * MOST_STRING)
    assert error.message is not None
    assert error.message == character * (MOST_STRING // 4)
    assert len(error.message.encode()) <= MOST_STRING


def test_a_refusal_of_records_is_an_error_of_the_request_too() -> None:
    error = RefusedRecordsError(ErrorCode.invalid_timestamp, "too old", [(3, "1 is too old")])
    assert isinstance(error, ApiError)
    assert (error.code, error.message, error.records) == (ErrorCode.invalid_timestamp, "too old", [(3, "1 is too old")])
