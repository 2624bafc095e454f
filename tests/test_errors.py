"""The hierarchy of errors, copies of errors, and counts in messages."""

from __future__ import annotations

import pickle

import pytest

from penstock import errors
from penstock.errors import (
    ClassCastError,
    ConfigError,
    CorruptedBaseError,
    CorruptedSegmentError,
    KafkaError,
    StreamsError,
    TopologyError,
    counted,
)

ALL = [each for each in vars(errors).values() if isinstance(each, type) and each.__module__ == errors.__name__]


@pytest.mark.parametrize(
    "error", [TopologyError("no sink"), CorruptedBaseError("/base", "short"), CorruptedSegmentError("ab", "is gone")]
)
def test_an_error_keeps_message_and_attributes_between_processes(error: StreamsError) -> None:
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))


def test_messages_name_the_damaged_object() -> None:
    assert str(TopologyError("no sink")) == "Invalid topology: no sink"
    base, segment = CorruptedBaseError("/base", "short"), CorruptedSegmentError("ab", "is gone")
    assert (base.path, str(base)) == (
        "/base",
        "The base /base is damaged: short. Penstock deletes it and makes it again.",
    )
    assert (segment.segment, segment.why, str(segment)) == ("ab", "is gone", "The segment ab is gone.")


def test_each_error_is_a_streams_error_except_the_one_of_java() -> None:
    assert [each for each in ALL if not issubclass(each, StreamsError)] == [ClassCastError]
    assert issubclass(ClassCastError, TypeError)
    assert issubclass(ConfigError, ValueError)


def test_errors_that_kafka_retries_are_kafka_errors() -> None:
    retriable = {each.__name__ for each in ALL if issubclass(each, errors.RetriableError)}
    assert retriable == {"RetriableError", "BrokerNotFoundError", "UnstableOffsetCommitError"}
    assert issubclass(errors.RetriableError, KafkaError)


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 records"), (1, "1 record"), (2, "2 records"), (1_234_567, "1,234,567 records")]
)
def test_a_count_has_a_plural_and_separators(count: int, shown: str) -> None:
    assert counted(count, "record") == shown
