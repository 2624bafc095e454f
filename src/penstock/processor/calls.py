"""Calls of functions outside of tasks: what a host needs to make one, and the record of its answer.

Rules:
- A record that waits for its call is an entry of the operator's store (`waiting_records`), committed with its offset.
- A host makes the call after that commit, and writes the answer to the answers topic of the operator, in the partition
  of the task, outside of transactions. The answers topic is an input of the task.
- The task uses an answer if its entry still waits: it forwards the results and deletes the entry in one commit. So the
  first answer of a record in the topic counts, and any other is ignored.
- An answer has the number of its entry and a digest of it, because numbers occur again when the state is partitioned
  in another way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from penstock.errors import CallFailedError, ProcessorStateError
from penstock.processor.backoff import Backoff
from penstock.processor.column_functions import ColumnFunction
from penstock.processor.waiting_records import WaitingRecord
from penstock.record import Headers
from penstock.serdes import Serde

_VERSION = b"\x02"


class NotCalled(Enum):
    """The type of NOT_CALLED, for annotations (no Kafka class)."""

    NOT_CALLED = "not called"


NOT_CALLED: Final = NotCalled.NOT_CALLED
"""The result of a function for `reconcile` of Calls if the service knows nothing of the call, which is then made."""


class CallOrder(Enum):
    """The order of the calls and results of one task.

    KEY: a key has one call at a time, in order of its records. PARTITION: calls run side by side, and results have the
    order of the records. UNORDERED: results have the order of the answers.
    """

    KEY = "key"
    PARTITION = "partition"
    UNORDERED = "unordered"


class CallFailure(Enum):
    """What becomes of a record whose last attempt failed.

    RAISE: an error of the record, for the exception handler. SKIP: the record is counted as dropped. BURY: it is a dead
    letter. FORWARD: the processor that made the call receives the error.
    """

    RAISE = "raise"
    SKIP = "skip"
    BURY = "bury"
    FORWARD = "forward"


class FailedCall(NamedTuple):
    """The value of a record on its way to the processor whose call failed.

    Args:
        waiting: the value of the waiting record.
        error: the failure.
    """

    waiting: Any
    error: CallFailedError


@dataclass(frozen=True, kw_only=True)
class CallRules:
    """The limits of one operator's calls.

    Args:
        capacity: maximum number of calls in flight, for each process.
        timeout_ms: maximum duration of one attempt in ms.
        attempts: maximum number of attempts for a record, including the first.
        backoff: the waits between attempts.
        retry_on: types of errors that are tried again.
        rate: maximum number of attempts started per second, for each process; None for no limit.
        order: of calls and results.
        threads: number of threads that run a blocking function; 0 for a coroutine function.
        max_records: number of waiting records from which on a task reads only answers.
        max_bytes: size of the waiting records in bytes from which on a task reads only answers.
        batch_size: maximum number of records in an attempt.
        batch_wait_ms: maximum time in ms, from its arrival, that a record waits for others to fill its attempt.
    """

    capacity: int
    timeout_ms: int
    attempts: int
    backoff: Backoff
    retry_on: tuple[type[Exception], ...]
    rate: float | None
    order: CallOrder
    threads: int
    max_records: int
    max_bytes: int
    batch_size: int = 1
    batch_wait_ms: int = 0


ClientFactory = Callable[[], AbstractAsyncContextManager[Any] | AbstractContextManager[Any]]
"""Makes the client of a process, a context manager that is left when the process ends."""


@dataclass(frozen=True)
class Reconcile:
    """The function that asks a service for the answer of a call that may have been made already.

    Args:
        function: takes the arguments of the operator's function, and returns its answer or NOT_CALLED.
        takes: the names of its keyword-only parameters among `client` and `call`.
        may_be_none: whether its annotation says that None is an answer.
    """

    function: Callable[..., Any]
    takes: frozenset[str]
    may_be_none: bool = False


@dataclass(frozen=True, kw_only=True)
class CallSpec:
    """An operator that calls a function outside of its task.

    Args:
        node: the name of the operator.
        store: the name of the store of waiting records.
        function: a coroutine function, or a blocking function with `rules.threads`. Positional arguments are the value,
            or key and value with `with_key`; the keyword-only parameters `client` and `call` are optional.
        with_key: whether the function takes the key.
        takes: the names of its keyword-only parameters among `client`, `call` and `calls`.
        open: makes the client; None without one.
        rules: the limits.
        on_failure: what becomes of a record whose last attempt failed.
        key_serde, value_serde: of the waiting records; None for the defaults of the configuration.
        answer_serde: of the results.
        reconcile: asks the service what became of an earlier attempt; None to make the call again.
        choose_answer_serde: returns the serde of the result for the value of an entry; None for `answer_serde`.
        columns: `function` as a function on columns, for several records in an attempt; None for one on a record.
    """

    node: str
    store: str
    function: Callable[..., Any]
    with_key: bool
    takes: frozenset[str]
    open: ClientFactory | None
    rules: CallRules
    on_failure: CallFailure
    key_serde: Serde | None
    value_serde: Serde | None
    answer_serde: Serde
    reconcile: Reconcile | None = None
    choose_answer_serde: Callable[[bytes | None], Serde] | None = None
    columns: ColumnFunction | None = None

    def answer_serde_of(self, waiting: WaitingRecord) -> Serde:
        """Return the serde of the result for a waiting record; raises StreamsError if its function is unknown."""
        return self.answer_serde if self.choose_answer_serde is None else self.choose_answer_serde(waiting.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """The record of a call, for the keyword-only parameter `call` of a function with Calls (no Kafka class).

    A function on columns has the parameter `calls` instead, a list with the context of each record.

    Args:
        topic: of the input record; None if it has no origin.
        partition: of the input record.
        offset: of the input record.
        key: of the record.
        timestamp: of the record, in ms.
        headers: of the record, (name, bytes or None) pairs.
        attempt: the number of this attempt, from 1.
        idempotency_key: the same for each attempt of the record, also after a restart, and for no other record of the
            operator. If the operator receives the input record, or what follows from it at once: topic, partition,
            offset and node, separated by "-", and after ":" the place of the record if the input record has caused
            several. If the record follows from another call, it begins with the key of that call, or with a digest of a
            long one. In all other cases it has application, task, node and number.
    """

    topic: str | None
    partition: int
    offset: int
    key: Any
    timestamp: int
    headers: Headers
    attempt: int
    idempotency_key: str

    @staticmethod
    def of(waiting: WaitingRecord, key: Any, attempt: int) -> CallContext:
        """Return the context of an attempt for a waiting record with this deserialised key."""
        return CallContext(
            topic=waiting.topic,
            partition=waiting.partition,
            offset=waiting.offset,
            key=key,
            timestamp=waiting.timestamp,
            headers=waiting.headers,
            attempt=attempt,
            idempotency_key=waiting.call_id,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a call, the value of a record of an answers topic.

    Args:
        sequence: the number of the waiting record.
        entry: the digest of the waiting record.
        attempts: the number of attempts that were made.
        result: the serialised result; None for None, or after a failure.
        failure: type and text of the last error; empty after a success.
        details: the traceback of the last error; empty after a success.
    """

    sequence: int
    entry: bytes
    attempts: int
    result: bytes | None
    failure: str = ""
    details: str = ""

    def answers(self, sequence: int, record: WaitingRecord) -> bool:
        """Return whether this is the answer for a waiting record with its number."""
        return self.sequence == sequence and self.entry == record.digest()

    def pack(self) -> bytes:
        """Serialise the answer: one byte with the version of the layout, and an array of MessagePack."""
        fields = (self.sequence, self.entry, self.attempts, self.result, self.failure, self.details)
        return _VERSION + msgspec.msgpack.encode(fields)


_DECODER = msgspec.msgpack.Decoder(tuple[int, bytes, int, bytes | None, str, str])


def unpack_answer(data: bytes, topic: str) -> Answer:
    """Deserialise an answer of the answers topic `topic`; raises ProcessorStateError if it cannot be read."""
    if data[:1] != _VERSION:
        raise ProcessorStateError(
            f"Topic {topic!r} has an answer in layout {data[:1].hex() or 'of no bytes'}; this version reads layout "
            f"{_VERSION.hex()}. Run the version of Penstock that wrote it."
        )
    try:
        return Answer(*_DECODER.decode(data[1:]))
    except msgspec.DecodeError as error:
        raise ProcessorStateError(f"Topic {topic!r} has a damaged answer: {error}.") from error
