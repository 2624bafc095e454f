"""The errors of queries of Spark Connect, whose message, trace and underlying exception are one text."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from penstock.errors import StreamsError
from penstock.host.spark.protocol.failures import (
    ProcessLostError,
    QueryFailedError,
    encode_failure,
    failure_of_exception,
)

KEY = b"k" * 32


def of_connect(message: str, cause: str) -> StreamingQueryException:
    """Return the exception of a query that ended with `message`, as the client of Spark 4.3 makes it."""
    trace = (
        f"org.apache.spark.sql.streaming.StreamingQueryException: {message}\n"
        "\tat org.apache.spark.sql.execution.streaming.runtime.StreamExecution.runStream(StreamExecution.scala:394)\n"
        f"Caused by: {cause}\n"
        "\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:397)\n"
    )
    return StreamingQueryException(f"(STREAM_FAILED) {message}\n\nJVM stacktrace:\n{trace}")


def test_an_error_of_penstock_arrives_unchanged() -> None:
    text = str(QueryFailedError(encode_failure(StreamsError("node map: no"), "printed"), KEY))
    error, printed = failure_of_exception("of app", of_connect(text, "org.apache.spark.SparkException: x"), KEY)
    assert (type(error), str(error), printed) == (StreamsError, "node map: no", "printed")


def test_an_error_of_another_is_readable() -> None:
    exception = of_connect("[X] Failed:\nValueError: no\n SQLSTATE: 38000", "org.apache.spark.SparkException: x")
    error, _ = failure_of_exception("of app", exception, KEY)
    assert type(error) is StreamsError
    assert str(error) == "The Spark query of app failed: ValueError: no"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("null", "java.io.EOFException"),
        ("Job aborted due to stage failure: A shuffle map stage with indeterminate output was lost", "x: y"),
    ],
)
def test_the_loss_of_a_process_is_known(message: str, cause: str) -> None:
    assert isinstance(failure_of_exception("of app", of_connect(message, cause), KEY)[0], ProcessLostError)


def test_a_record_that_is_quoted_does_not_look_like_the_loss_of_a_process() -> None:
    message = "Failed to read:\nCaused by: java.io.EOFException\n\tat x"
    error, _ = failure_of_exception("of app", of_connect(message, "org.apache.spark.SparkException: x"), KEY)
    assert type(error) is StreamsError
