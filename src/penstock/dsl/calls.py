"""Calls: the function of an operator is called outside of its task, while other records go on.

Immutable: `with_...` returns a changed copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from penstock.dsl.arguments import check_number, check_serdes
from penstock.dsl.call_functions import processor_calling
from penstock.dsl.call_nodes import types_of
from penstock.plan import nodes
from penstock.plan.internal_topics import check_topic_name
from penstock.plan.names import check_name
from penstock.plan.processor_calls import ProcessorCalls
from penstock.processor.api import ProcessorSupplier
from penstock.processor.backoff import Backoff
from penstock.processor.calls import CallFailure, CallOrder, ClientFactory
from penstock.serdes import Serde
from penstock_broker.common.durations import Duration, milliseconds

_SMALLEST_NUMBER_MS = 100
"""The smallest timeout as a bare number: a smaller one was probably meant in seconds."""


_BACKOFF = Backoff(100, limit=10_000)
"""The waits of a Retry that names no others."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """The attempts of a call, for `Calls` (no Kafka class).

    A record that waits for its next attempt takes no place of the capacity. In the order of keys, later records of its
    key wait with it.

    Args:
        attempts: maximum number of attempts for a record, including the first.
        backoff: the waits between the attempts.
        on: the type of the errors that are tried again, or a tuple of types.

    Raises:
        TypeError: an argument has another type.
        ValueError: `attempts` is below 1.
    """

    attempts: int
    backoff: Backoff = _BACKOFF
    on: type[Exception] | tuple[type[Exception], ...] = Exception

    def __post_init__(self) -> None:
        check_number("attempts of Retry", self.attempts)
        if not isinstance(self.backoff, Backoff):
            raise TypeError(
                f"Expected a Backoff for Retry, got {self.backoff!r}: write Backoff(timedelta(seconds=1)), for example."
            )
        kinds: tuple[object, ...] = types_of(self)
        for each in kinds:
            if not (isinstance(each, type) and issubclass(each, Exception)):
                raise TypeError(f"Expected types of errors for on of Retry, got {each!r}.")


@dataclass(frozen=True, kw_only=True)
class Calls(ProcessorCalls):
    """Calls the function of an operator outside of its task, for `calls` (no Kafka class).

    The function is a coroutine function (`async def`), or a blocking function with `threads`. Each record waits in a
    store of the operator until the answer of its call comes; meanwhile the task takes further records, and commits. The
    results have the timestamp, headers and context of the record. With exactly-once, each answer is used once, also
    after a crash. A call is made again if the process ends before its answer is in the answers topic, unless
    `reconcile` finds that answer at the service.

    The function may have two keyword-only parameters: `client`, the object that `open` made, and `call`, a CallContext
    with the origin of the record, the number of the attempt and a key for idempotent services.

    A function on columns, with the mark of `vectorized` or `model`, takes several waiting records in one attempt, and
    returns an answer for each. An exception among the answers fails its record. If an attempt fails, each of its
    records has failed once; the last of several attempts of a record is made for it alone. It may have the keyword-only
    parameter `calls`, a list of CallContext, instead of `call`.

    Args:
        capacity: maximum number of attempts in flight, for each process.
        timeout: maximum duration of an attempt, as a timedelta or a number of ms from 100 on; after it, the attempt is
            cancelled and has failed.
        retry: the attempts.
        rate: maximum number of attempts started per second, for each process; None for no limit.
        order: "key": a key has one call at a time, in order of its records. "partition": calls run side by side, and
            the results have the order of the records. "unordered": the results have the order of the answers.
        threads: number of threads that run a blocking function; 0 for a coroutine function.
        open: a function that returns a context manager, asynchronous or not. Its object is the `client` of all calls of
            a process, which leaves it at the end. It is tried as often as `retry` says, at the cost of no record's
            attempts; then its error ends the program.
        on_failure: "raise": a record whose last attempt failed goes to `processing.exception.handler`, with a
            CallFailedError. "skip": it is counted as dropped.
        then: an existing topic for the records whose last attempt failed, as dead letters, instead of `on_failure`.
        max_records: number of waiting records of a task from which on it reads only answers.
        max_bytes: size of the waiting records of a task in bytes from which on it reads only answers.
        batch_size: maximum number of records in an attempt of a function on columns; None for 64, or for that of the
            model.
        batch_wait: maximum time (ms, or a timedelta), from its arrival, that a record waits for others to fill an
            attempt.
        key_serde: of the records' keys in the store; None for the stream's.
        value_serde: of the records' values in the store; None for the stream's.
        answer_serde: of the results; None for MessagePack of the annotated return type.
        store_name: the name of the store; None for that of the operator with the suffix "-calls".
        reconcile: a function of one record with the parameters of the called one, a coroutine function or a blocking
            one as that is. It asks the service for the answer of a call that may have been made already, and returns
            it, or NOT_CALLED, after which the call is made. It is called before each attempt but the first one of a
            record that has just arrived, and such an attempt is for one record; its error fails the attempt, and
            `timeout` limits it like the call. None: calls are made again.

    Raises:
        TypeError: an argument has another type.
        ValueError: a number is out of range, a name is unknown, or both `on_failure` and `then` are given.
        TopologyError: a name is illegal.
    """

    capacity: int = 100
    timeout: Duration = timedelta(seconds=30)
    retry: Retry = Retry(attempts=1)
    rate: float | None = None
    order: Literal["key", "partition", "unordered"] = "key"
    threads: int = 0
    open: ClientFactory | None = None
    on_failure: Literal["raise", "skip"] = "raise"
    then: str | None = None
    max_records: int = 10_000
    max_bytes: int = 67_108_864
    batch_size: int | None = None
    batch_wait: Duration = 0
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    answer_serde: Serde | None = None
    store_name: str | None = None
    reconcile: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        check_serdes(self, "key_serde", "value_serde", "answer_serde", made_by="")
        for name in ("capacity", "max_records", "max_bytes"):
            check_number(f"{name} of Calls", getattr(self, name))
        check_number("threads of Calls", self.threads, smallest=0)
        self._check_timeout()
        if self.batch_size is not None:
            check_number("batch_size of Calls", self.batch_size)
        if milliseconds(self.batch_wait, "the batch_wait of Calls") < 0:
            raise ValueError(f"The batch_wait of Calls must not be negative, got {self.batch_wait!r}.")
        if not isinstance(self.retry, Retry):
            raise TypeError(f"Expected a Retry for Calls, got {self.retry!r}: write Retry(attempts=5), for example.")
        if self.rate is not None and type(self.rate) not in (int, float):
            raise TypeError(f"Expected the rate of Calls as a number per second, got {self.rate!r}.")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise ValueError(f"The rate of Calls must be larger than 0, got {self.rate!r}.")
        if self.open is not None and not callable(self.open):
            raise TypeError(
                f"Expected a function for open of Calls, which returns a context manager, got {self.open!r}."
            )
        _check_choice("order", self.order, [each.value for each in CallOrder])
        _check_choice("on_failure", self.on_failure, [CallFailure.RAISE.value, CallFailure.SKIP.value])
        self._check_names()

    def _check_timeout(self) -> None:
        if milliseconds(self.timeout, "the timeout of Calls") < 1:
            raise ValueError(f"The timeout of Calls must be at least 1 ms, got {self.timeout!r}.")
        if not isinstance(self.timeout, timedelta) and self.timeout < _SMALLEST_NUMBER_MS:
            raise ValueError(
                f"The timeout of Calls is a number of ms, so {self.timeout!r} is {self.timeout!r} ms: write "
                f"timedelta(seconds={self.timeout!r}), or timedelta(milliseconds={self.timeout!r}) if it is meant."
            )

    def _check_names(self) -> None:
        if self.then is not None:
            if not isinstance(self.then, str):
                raise TypeError(f"Expected the name of a topic for then of Calls, got {self.then!r}.")
            if self.on_failure != CallFailure.RAISE.value:
                raise ValueError("Give Calls either on_failure or then: a record is skipped, or a dead letter.")
            check_topic_name(self.then)
        if self.store_name is not None:
            check_name(self.store_name)

    def of_processor(
        self,
        operator: str,
        processors: ProcessorSupplier,
        functions: Sequence[Callable[..., Any]],
        key_serde: Serde | None,
    ) -> nodes.ProcessorCalling:
        """Return the calls of a processor's node. Engine-internal; see ProcessorCalls."""
        return processor_calling(operator, processors, self, functions, key_serde)

    def with_key_serde(self, key_serde: Serde | None) -> Calls:
        """Return a copy with this key serde."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Serde | None) -> Calls:
        """Return a copy with this value serde."""
        return replace(self, value_serde=value_serde)

    def with_answer_serde(self, answer_serde: Serde | None) -> Calls:
        """Return a copy with this serde of the results."""
        return replace(self, answer_serde=answer_serde)

    def with_store_name(self, store_name: str) -> Calls:
        """Return a copy with the name of the store; raises TopologyError if it is illegal."""
        return replace(self, store_name=store_name)


def _check_choice(what: str, given: object, known: list[str]) -> None:
    if given not in known:
        raise ValueError(f"Expected {what} of Calls as one of {', '.join(map(repr, known))}, got {given!r}.")
