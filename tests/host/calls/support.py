"""Operators with calls, and a writer that keeps their answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock.config import StreamsConfig
from penstock.host.calls.answer_writer import CallAnswer
from penstock.host.calls.runner import CallRunner
from penstock.processor.backoff import Backoff
from penstock.processor.calls import CallFailure, CallOrder, CallRules, CallSpec, ClientFactory, Reconcile
from penstock.processor.column_functions import column_function, has_mark
from penstock.processor.waiting_records import WaitingRecord
from penstock.serdes import Serdes

CONFIG = StreamsConfig({"application.id": "shop", "bootstrap.servers": "localhost:9092"})
TOPIC = "shop-risk-answers"
LIMIT_SECONDS = 20.0


def rules(**changed: Any) -> CallRules:
    """Return rules that suit a test, with changes."""
    given: dict[str, Any] = {
        "capacity": 100,
        "timeout_ms": 10_000,
        "attempts": 1,
        "backoff": Backoff(1),
        "retry_on": (Exception,),
        "rate": None,
        "order": CallOrder.KEY,
        "threads": 0,
        "max_records": 1_000,
        "max_bytes": 1_000_000,
    }
    return CallRules(**{**given, **changed})


def spec(
    function: Callable[..., Any],
    *,
    node: str = "risk",
    open: ClientFactory | None = None,
    with_key: bool = False,
    takes: Sequence[str] = (),
    reconcile: Callable[..., Any] | None = None,
    **changed: Any,
) -> CallSpec:
    """Return an operator of texts; `reconcile` takes the value, `changed` are rules.

    A marked function is one on columns.
    """
    return CallSpec(
        node=node,
        store=f"{node}-calls",
        function=function,
        with_key=with_key,
        takes=frozenset(takes),
        open=open,
        rules=rules(**changed),
        on_failure=CallFailure.RAISE,
        key_serde=Serdes.string(),
        value_serde=Serdes.string(),
        answer_serde=Serdes.string(),
        reconcile=None if reconcile is None else Reconcile(reconcile, frozenset()),
        columns=column_function(function) if has_mark(function) else None,
    )


def record(key: str | None, value: str, offset: int = 0, partition: int = 0) -> WaitingRecord:
    """Return a waiting record of the topic `orders`."""
    packed = None if key is None else key.encode()
    call_id = f"orders-{partition}-{offset}-risk"
    return WaitingRecord(packed, value.encode(), 1_000 + offset, (), "orders", partition, offset, call_id=call_id)


def entries(*records: tuple[str | None, str]) -> list[tuple[int, WaitingRecord]]:
    """Return waiting records with the numbers 1, 2, ... ."""
    return [(number, record(key, value, number)) for number, (key, value) in enumerate(records, 1)]


class KeptAnswers:
    """A writer that keeps the answers; tests wait for them.

    Args:
        settles: whether written answers are settled at once.
    """

    def __init__(self, settles: bool = True) -> None:
        self.records: list[CallAnswer] = []
        self.unsettled: list[Callable[[], None]] = []
        self.is_opened = self.is_closed = False
        self._settles = settles
        self._changed = threading.Condition()

    def open(self) -> None:
        """Note that the connection is wanted."""
        self.is_opened = True

    def write(self, records: Sequence[CallAnswer], settled: Callable[[], None]) -> None:
        """Keep answers."""
        with self._changed:
            self.records.extend(records)
            if not self._settles:
                self.unsettled.append(settled)
            self._changed.notify_all()
        if self._settles:
            settled()

    def close(self, seconds: float) -> bool:
        """Note the end."""
        self.is_closed = True
        return True

    def wait_for(self, number: int) -> list[CallAnswer]:
        """Return the answers as soon as there are `number` of them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.records) >= number, LIMIT_SECONDS), self.records
            return [*self.records]

    def results(self, number: int) -> list[str | None]:
        """Return the results of the first `number` answers, failures as their texts."""
        answers = [each.answer for each in self.wait_for(number)]
        return [each.failure or (None if each.result is None else each.result.decode()) for each in answers]


def running(
    writer: KeptAnswers,
    *specs: CallSpec,
    failed: Callable[[Exception], None] = print,
    cancel_seconds: float = 5.0,
) -> CallRunner:
    """Return a runner of operators."""
    topics = {each.node: f"shop-{each.node}-answers" for each in specs}
    return CallRunner(specs, topics, CONFIG, writer, failed, cancel_seconds)


class Gatekeeper:
    """Calls that end one by one when a test says so.

    `call` is the function of an operator; its result is the value in upper case.
    """

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._let_go: set[str] = set()
        self._changed = threading.Condition()

    async def call(self, value: str) -> str:
        """Wait until the test lets `value` go."""
        with self._changed:
            self.begun.append(value)
            self._changed.notify_all()
        while value not in self._let_go:
            await asyncio.sleep(0.001)
        return value.upper()

    def let_go(self, *values: str) -> None:
        """Let calls end, now or later."""
        self._let_go.update(values)

    def wait_for(self, number: int) -> list[str]:
        """Return the values whose calls have begun, as soon as there are `number` of them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.begun) >= number, LIMIT_SECONDS), self.begun
            return [*self.begun]


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    limit, pause = time.monotonic() + LIMIT_SECONDS, threading.Event()
    while not condition():
        assert time.monotonic() < limit
        pause.wait(0.002)


async def upper(value: str) -> str:
    """Return the value in upper case."""
    return value.upper()


Run = Callable[..., CallRunner]
"""Starts a runner of operators; see the fixture `run`."""

HOUR = 3_600_000
"""In ms."""
