"""Errors on their way from a worker to the program.

The program gets one object instead of the tracebacks of three processes. A worker that fails with a StreamsError sends
it to the sink as a row. Then nothing of the epoch is written, no attempt is repeated (the error of a user's function
would only recur), and the sink's commit ends the query with the error. Any other exception is left to Spark, which runs
the task again on another worker. The text of the exception that Spark reports contains the error in brackets.

The text of an exception may also quote a record, so anyone who writes to a topic can put brackets into it. The error is
therefore signed with the key of its query, which only the processes of the query know, and nothing else is decoded.
"""

from __future__ import annotations

import hmac
import pickle
import re
import traceback
from base64 import b64decode, b64encode
from itertools import takewhile

import orjson
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.captured import CapturedException

from penstock.errors import StreamsError
from penstock.host.packing.carried_errors import carried, made_again, with_causes
from penstock.plan.user_lines import called_lines
from penstock.record import FailedRecord

_MARK = re.compile(r"\[penstock-failure:([0-9a-f]{64}):([A-Za-z0-9+/=]+)\]")
_LINES = 12
_LOST_PROCESS = (
    "java.io.EOFException",
    "java.io.IOException: Broken pipe",
    "java.io.IOException: Stream closed",
    "java.net.SocketException: Connection reset",
    "org.apache.spark.SparkException: EOFException occurred while reading the port number",
    "org.apache.spark.SparkException: Python worker exited unexpectedly",
    "org.apache.spark.SparkException: Python worker failed to connect back",
)
"""The exceptions of the JVM that end a query after the loss of a Python process that plans or commits its epochs.

The activity of the JVM decides between them. The last is for a process that did not start within Spark's 10 s.
"""

_TRACE_OF_CONNECT = "\n\nJVM stacktrace:\n"
_CLASS_OF_CONNECT = re.compile(r"^\([A-Z_.]+\) ")
_CAUSE = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
_LOST_EXECUTOR = re.compile(
    r"(?:\[STREAM_FAILED\] )?(?:Query [^\n]{0,2000}?\[id = [^]\n]{0,200}\] terminated with exception: )?"
    r"(?:\[[A-Z_]+\] )?(?:Writing job aborted\.? ?)?Job aborted due to stage failure: (?!Task \d)[^\n]*?"
    r"(?:with indeterminate output|indeterminate rollback|checksum mismatch)"
)
"""The beginning of Spark's message if it cannot repeat the work of a lost executor.

The reason is that part of the epoch is already written, and Spark does not know that this is harmless. The message of a
failed task may contain any text.
"""


class ProcessLostError(StreamsError):
    """Spark has lost one of its processes, and has ended the query. The process is an executor or a Python process next
    to the JVM; Spark does not restart it. The epoch itself is fine.

    What to do: Nothing at first: the application restarts the query (`penstock.restart.*`). If it recurs, find the
    cause of the process's end, such as a memory limit, in the log of Spark.
    """


class QueryFailedError(Exception):
    """Ends the query from inside Spark; its text contains the error.

    Args:
        failure: the bytes from `encode_failure`.
        key: of the query; signs the failure.
    """

    def __init__(self, failure: bytes, key: bytes) -> None:
        self.failure = failure
        encoded = b64encode(failure).decode()
        super().__init__(f"[penstock-failure:{_signature(encoded, key)}:{encoded}]")


def _signature(encoded: str, key: bytes) -> str:
    assert key, "a query has a key of its own"
    return hmac.digest(key, encoded.encode(), "sha256").hex()


def encode_failure(error: StreamsError, printed: str) -> bytes:
    """Return an encoded `error` with its causes and the text `printed` before.

    It also contains the lines of the user's code that led to the causes.
    """
    notes = list(getattr(error, "__notes__", []))
    cause = error.__cause__
    if cause is not None:
        told = f"{type(cause).__name__}: {cause}\n"  # with the line that is in the traceback too
        notes = [*(note for note in notes if not note.startswith(told)), _user_traceback(cause)]
    fields = {"type": type(error).__name__, "message": str(error), "notes": notes, "printed": printed}
    record = None if error.failed_record is None else tuple(error.failed_record)
    causes = b64encode(pickle.dumps([carried(each) for each in with_causes(cause)])).decode()
    return orjson.dumps({**fields, "record": record, "causes": causes})


def decode_failure(failure: bytes) -> tuple[StreamsError, str]:
    """Return the error in `failure`, of the same class, and the text printed before it.

    Args:
        failure: from a process of this query; its causes are pickles.
    """
    fields = orjson.loads(failure)
    classes = {cls.__name__: cls for cls in _all_classes(StreamsError)}
    cls = classes.get(fields["type"], StreamsError)
    error = cls.__new__(cls, fields["message"])
    Exception.__init__(error, fields["message"])
    error.failed_record = None if fields["record"] is None else FailedRecord(*fields["record"])
    for note in fields["notes"]:
        error.add_note(note)
    error.__cause__ = made_again(pickle.loads(b64decode(fields["causes"])))
    return error, fields["printed"]


def failure_in(text: str, key: bytes) -> tuple[StreamsError, str] | None:
    """Return the error in a text of Spark, and its printed text; None if absent.

    Args:
        text: Spark's message.
        key: of the query. A failure signed with another key comes from a record, not from a process of the query.
    """
    for signature, encoded in _MARK.findall(text):
        if hmac.compare_digest(signature, _signature(encoded, key)):
            return decode_failure(b64decode(encoded))
    return None


def error_of_spark(query: str, text: str, cause: str = "") -> StreamsError:
    """Return the error for a text of Spark that contains no error of Penstock.

    Args:
        query: the query's name in the message: "of my-application".
        text: Spark's message about its end.
        cause: the underlying exception of the JVM, its class first; empty if absent.
    """
    failed = f"The Spark query {query} failed"
    if cause.startswith(_LOST_PROCESS):
        return ProcessLostError(
            f"{failed}: one of its Python processes ended (killed, or out of memory), or did not start in time: "
            f"{cause.splitlines()[0]}. After a restart, the application continues from its last committed epoch."
        )
    lost = any(map(_LOST_EXECUTOR.match, (text, cause.partition(": ")[2])))
    return (ProcessLostError if lost else StreamsError)(f"{failed}: {readable(text)}")


def failure_of_exception(query: str, exception: StreamingQueryException, key: bytes) -> tuple[StreamsError, str]:
    """Return the error that ended a query of Spark, and its printed text.

    See `failure_in`.
    """
    text, cause = _text_and_cause(exception)
    return failure_in(text, key) or (error_of_spark(query, text, cause), "")


def _text_and_cause(exception: StreamingQueryException) -> tuple[str, str]:
    """Return Spark's message and the underlying exception of the JVM; Spark Connect has both in one text."""
    if isinstance(exception, CapturedException):
        return str(exception), str(exception._cause or "")
    text, _, trace = str(exception).partition(_TRACE_OF_CONNECT)
    text = _CLASS_OF_CONNECT.sub("", text)
    cause = _CAUSE.search(trace.partition(text)[2])  # after the message, which the trace repeats: it may quote a record
    return text, "" if cause is None else cause.group(1)


def readable(text: str) -> str:
    """Return the useful lines of a text of Spark.

    These are its last Python exception, else its first lines.
    """
    lines = [
        line for line in text.strip().splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))
    ]
    errors = [
        line
        for line in lines
        if re.match(r"^[\w.]+(Error|Exception|Interrupt): ", line) and not line.startswith(("org.", "java."))
    ]
    said = list(takewhile(lambda line: not line.startswith("=== Streaming Query"), lines))  # the whole plan follows
    return "\n".join(errors[-1:] or said[:_LINES])


def _user_traceback(cause: BaseException) -> str:
    """Return the traceback of `cause` without frames of Penstock and of Spark's workers."""
    return "\n".join(filter(None, (called_lines(cause), "".join(traceback.format_exception_only(cause)).rstrip())))


def _all_classes(root: type[StreamsError]) -> list[type[StreamsError]]:
    return [root, *(cls for child in root.__subclasses__() for cls in _all_classes(child))]
