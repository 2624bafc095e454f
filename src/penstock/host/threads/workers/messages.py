"""Messages between an instance and its worker processes.

They are actions and events of `vocabulary`, reads of stores, and log lines. A message is a pickle after its length. Its
record batches are blobs of columns (`record_blobs`): no record is pickled. A connection carries messages in order, and
never two at a time in one direction.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from penstock.host.packing.carried_errors import CarriedError, carried, made_again, with_causes
from penstock.host.packing.record_blobs import decode_batch, encode_batch
from penstock.host.threads import vocabulary as v
from penstock.host.threads.visibility import Visibility
from penstock.log_context import Work
from penstock.plan.subtopology import TaskId
from penstock.plan.user_lines import called_lines
from penstock.record import RecordBatch, TopicPartition
from penstock.task.changelog_copy import ChangelogStamp
from penstock.task.task_checkpoint import TaskCheckpoint

_LENGTH = struct.Struct(">Q")
_WHOLE = 2**63  # a batch is one blob of any size
_PIECE = 1024 * 1024


@dataclass(frozen=True)
class WorkerProgram:
    """The first message to a worker.

    Args:
        layout: the `Layout` of the application with the user's functions, pickled by `dump_program`.
        run: run of the state directory, see `StateDirectory.run`.
        log_level: the lowest level of the log lines to send.
    """

    layout: bytes
    run: str
    log_level: int


@dataclass(frozen=True)
class WorkerReady:
    """A worker has loaded the program, or could not because of `error`."""

    error: str = ""


@dataclass(frozen=True)
class Open:
    """`vocabulary.Start` of a task with a base on disk that is closed here."""

    task: TaskId
    stamp: ChangelogStamp
    positions: Mapping[TopicPartition, int]
    checkpoint: TaskCheckpoint
    now_ms: int
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenGlobal:
    """Start the task of the global stores with these entries by store. Each worker has a copy of them."""

    task: TaskId
    stamp: ChangelogStamp
    positions: Mapping[TopicPartition, int]
    entries: Mapping[str, Mapping[bytes, bytes]]
    now_ms: int


WorkerAction = Open | OpenGlobal | v.RunTask | v.Prepare | v.Apply | v.Close
"""An action of a worker."""


@dataclass(frozen=True)
class LogLine:
    """A log line: logger, level, text and the work that caused it."""

    logger: str
    level: int
    text: str
    work: Work


@dataclass(frozen=True)
class ReadPositions:
    """Request the `OpenTaskPositions` of each open task of the worker that has the store."""

    store: str
    visible: Visibility


@dataclass(frozen=True)
class ReadStore:
    """Call a method on the bytes of a store, or read an attribute. visible, part: see `TaskRunner.reads`."""

    task: TaskId
    store: str
    visible: Visibility
    part: str
    name: str
    arguments: Sequence[Any] = ()


@dataclass(frozen=True)
class ReadTap:
    """Request the last records that have reached a node, and keep such records: `OpenTasks.tapped`."""

    node: str
    limit: int


@dataclass(frozen=True)
class CloseTap:
    """Stop keeping the records of a node."""

    node: str


class WorkerConnection:
    """One end of a stream of messages; it owns its socket."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def send(self, message: object) -> None:
        """Send a message; raises OSError if the other end is gone."""
        data = encoded(message)
        self._stream.sendall(_LENGTH.pack(len(data)))
        self._stream.sendall(data)

    def receive(self) -> Any:
        """Return the next message; raises EOFError if the other end is gone."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return pickle.loads(self._exactly(length))

    def _exactly(self, size: int) -> bytearray:
        data, have = bytearray(size), 0
        with memoryview(data) as view:
            while have < size:
                try:
                    received = self._stream.recv_into(view[have : have + _PIECE])
                except OSError as error:
                    raise EOFError from error
                if not received:
                    raise EOFError
                have += received
        return data

    def close(self) -> None:
        """Close the stream, and wake a thread that waits for it."""
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._stream.close()


class _Pickler(pickle.Pickler):
    """Pickles record batches as blobs, and errors with their causes."""

    def reducer_override(self, obj: Any) -> Any:
        """Return the function and arguments that rebuild `obj`."""
        if isinstance(obj, RecordBatch):
            (blob,) = encode_batch("", 0, obj, _WHOLE)
            return _batch, (blob,)
        if isinstance(obj, BaseException):
            return made_again, (_carried(obj),)
        return NotImplemented


def encoded(message: object) -> bytes:
    """Return `message` as bytes for `pickle.loads`."""
    with io.BytesIO() as file:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(message)
        return file.getvalue()


def _batch(blob: bytes) -> RecordBatch:
    return decode_batch(blob).batch


def _carried(error: BaseException) -> list[CarriedError]:
    """Return `error` and its causes. The innermost one has a note with the user's lines that led to it, because a
    pickle does not hold them."""
    chain = list(with_causes(error))
    errors = [carried(each) for each in chain]
    if lines := called_lines(chain[-1]):
        errors[-1].notes.append(lines)
    return errors
