"""What crosses between an instance and its worker processes: actions and events of `vocabulary`, reads of stores, lines
of the log.

A message is a pickle behind its length. Record batches within it are blobs of columns (`record_blobs`): no record is
pickled. A connection carries messages in one order, and never two at a time in one direction.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FunctionType
from typing import Any

import cloudpickle

import penstock
from penstock.errors import StreamsError
from penstock.host.record_blobs import decode_batch, encode_batch
from penstock.host.threads import vocabulary as v
from penstock.log_context import Work
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch, TopicPartition
from penstock.task.changelog_copy import ChangelogStamp
from penstock.task.task_checkpoint import TaskCheckpoint

_LENGTH = struct.Struct(">Q")
_WHOLE = 2**63  # a batch is one blob, however large
_PIECE = 1024 * 1024
_OWN_CODE = str(Path(penstock.__file__).parent)
_LINES = 12


@dataclass(frozen=True)
class Program:
    """The first message to a worker. layout: of the application (`Layout`), with the functions of the user, pickled by
    `dump_program`. run: of the state directory, see `StateDirectory.run`. log_level: of the lines that are wanted."""

    layout: bytes
    run: str
    log_level: int


@dataclass(frozen=True)
class Ready:
    """A worker has loaded the program, unless `error` says why it could not."""

    error: str = ""


@dataclass(frozen=True)
class Open:
    """`vocabulary.Start`, of a task whose base is on the disk and closed here."""

    task: TaskId
    stamp: ChangelogStamp
    positions: Mapping[TopicPartition, int]
    checkpoint: TaskCheckpoint
    now_ms: int


@dataclass(frozen=True)
class OpenGlobal:
    """Start the task of the global stores with these entries by store: each worker has a copy of them."""

    task: TaskId
    stamp: ChangelogStamp
    positions: Mapping[TopicPartition, int]
    entries: Mapping[str, Mapping[bytes, bytes]]
    now_ms: int


WorkerAction = Open | OpenGlobal | v.Run | v.Prepare | v.Apply | v.Close
"""What a worker does."""


@dataclass(frozen=True)
class LogLine:
    """A line of the log: logger, level, text, and what it comes from."""

    logger: str
    level: int
    text: str
    work: Work


@dataclass(frozen=True)
class ReadPositions:
    """Ask for the `TaskPositions` of each open task of the worker that has the store."""

    store: str


@dataclass(frozen=True)
class ReadStore:
    """Call a method of the bytes of a store, or look at an attribute. part: see `TaskRunner.reads`."""

    task: TaskId
    store: str
    part: str | None
    name: str
    arguments: Sequence[Any] = ()


@dataclass(frozen=True)
class ReadTap:
    """Ask for the last records that have reached a node, and for such records to be kept: `OpenTasks.tapped`."""

    node: str
    limit: int


@dataclass(frozen=True)
class CloseTap:
    """Ask for the records of a node to be kept no longer."""

    node: str


class Connection:
    """One end of a stream of messages."""

    def __init__(self, stream: socket.socket) -> None:
        """Take over `stream`."""
        self._stream = stream

    def send(self, message: object) -> None:
        """Send a message; raises OSError if nobody is at the other end."""
        data = encoded(message)
        self._stream.sendall(_LENGTH.pack(len(data)))
        self._stream.sendall(data)

    def receive(self) -> Any:
        """Return the next message; raises EOFError if there is none, because nobody is at the other end."""
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
        """Close the stream, also for a thread that waits at it."""
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._stream.close()


class _Pickler(pickle.Pickler):
    """Makes blobs of record batches."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how `obj` is made again."""
        if isinstance(obj, RecordBatch):
            (blob,) = encode_batch("", 0, obj, _WHOLE)
            return _batch, (blob,)
        if isinstance(obj, BaseException):
            return _error, (_encoded_error(obj),)
        return NotImplemented


def encoded(message: object) -> bytes:
    """Return `message` as bytes for `pickle.loads`."""
    with io.BytesIO() as file:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(message)
        return file.getvalue()


def _batch(blob: bytes) -> RecordBatch:
    return decode_batch(blob).batch


def _encoded_error(error: BaseException) -> list[tuple[bytes | None, str, list[str]]]:
    """Return `error` and its causes: as they are if they can be pickled, else as text, and their notes. The innermost
    one has a note with the user's lines that led to it, which a pickle does not hold."""
    errors: list[tuple[bytes | None, str, list[str]]] = []
    found: BaseException | None = error
    while found is not None:
        notes, cause = list(getattr(found, "__notes__", ())), found.__cause__
        if cause is None and (lines := _lines_of_user(found)):
            notes.append(lines)
        errors.append((_pickled(found), f"{type(found).__name__}: {found}", notes))
        found = cause
    return errors


def _lines_of_user(error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_OWN_CODE, "<frozen"))
    ]
    return "".join(traceback.format_list(frames[-_LINES:])).rstrip()


def _pickled(error: BaseException) -> bytes | None:
    attributes = {name: value for name, value in vars(error).items() if name != "__notes__"}
    try:
        data: bytes = cloudpickle.dumps((type(error), error.args, attributes))
        same = str(_unpickled(data)) == str(error)
    except Exception:  # whatever an object's own pickling raises
        return None
    return data if same else None


def _unpickled(data: bytes) -> BaseException:
    kind, arguments, attributes = pickle.loads(data)
    error: BaseException = kind.__new__(kind, *arguments)
    if not isinstance(kind.__init__, FunctionType):  # one in Python may take other arguments, or change them
        kind.__init__(error, *arguments)
    vars(error).update(attributes)
    return error


def _error(errors: list[tuple[bytes | None, str, list[str]]]) -> BaseException:
    """Return the error that `_encoded_error` wrote, with its causes."""
    made = [_one_error(*each) for each in errors]
    for error, cause in pairwise(made):
        error.__cause__ = cause
    return made[0]


def _one_error(data: bytes | None, text: str, notes: list[str]) -> BaseException:
    error: BaseException = StreamsError(text)
    if data is not None:
        with suppress(Exception):  # of a class that cannot be made here
            error = _unpickled(data)
    for note in notes:
        error.add_note(note)
    return error
