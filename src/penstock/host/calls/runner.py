"""Makes the calls of the operators of a process, in a loop of its own thread.

A host uses it so:

- `add` the waiting records of a task after the commit that added them; those that are there when a task is opened, once
  its `CallGate` is open. The order of records that wait is that of the calls of `add`.
- `drop` the calls of a task when it is closed, and `await_written` before it looks for the end of its answers again.
- Answers go to the writer, and the task receives them as an input.

The thread starts with the first records, so that a topology without calls costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from penstock.config import StreamsConfig
from penstock.host.calls.answer_writer import AnswerWriter
from penstock.host.calls.attempt import CANCEL_SECONDS
from penstock.host.calls.blocked_loop import BlockedLoop, named_functions, running_function
from penstock.host.calls.measuring import CallFigures
from penstock.host.calls.node_calls import NodeCalls
from penstock.host.calls.standstill import LOOK_SECONDS, Standstill
from penstock.log_context import logged_as
from penstock.processor.call_function import call_function
from penstock.processor.calls import CallSpec
from penstock.processor.waiting_records import Waiting

_log = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 10.0
"""Longest wait for the clients of all operators at the end."""


class CallRunner:
    """The calls of a process. Its methods may be called from any thread.

    Args:
        specs: the operators.
        topics: the name of each operator's answers topic.
        config: the configuration of the application.
        writer: writes the answers; closed by the runner.
        failed: receives an error by which an operator makes no calls, in the thread of the calls.
        cancel_seconds: the time in which a cancelled coroutine must end.

    Raises:
        ConfigError: a serde of waiting records is missing.
    """

    def __init__(
        self,
        specs: Iterable[CallSpec],
        topics: Mapping[str, str],
        config: StreamsConfig,
        writer: AnswerWriter,
        failed: Callable[[Exception], None],
        cancel_seconds: float = CANCEL_SECONDS,
    ) -> None:
        self._name = str(config.required("application.id"))
        self._specs = {spec.node: spec for spec in specs}
        self._topics = topics
        defaults = config["default.key.serde"], config["default.value.serde"]
        self._functions = {
            node: call_function(spec, topics[node], self._name, *defaults) for node, spec in self._specs.items()
        }
        self._writer = writer
        self._failed = failed
        if self._specs:
            writer.open()
        self._cancel_seconds = cancel_seconds
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._nodes: dict[str, NodeCalls] = {}
        self._standstill: Standstill | None = None
        self._blocked: BlockedLoop | None = None
        self._partitions: dict[str, set[int]] = {node: set() for node in self._specs}
        self._is_paused = False
        self._is_closed = False

    def add(self, node: str, partition: int, entries: Sequence[Waiting]) -> None:
        """Call the function of an operator for the waiting records of a task.

        Args:
            node: the name of the operator.
            partition: the number of the task's partition.
            entries: the numbers and the records, in ascending order; those known already are ignored.
        """
        if entries:
            self._start_loop()
            self._post(lambda: self._add(node, partition, entries))

    def drop(self, node: str, partition: int) -> None:
        """Cancel the calls of a task for an operator. Answers that exist are still written."""
        self._post(lambda: self._drop(node, partition))

    def await_written(self, node: str, partition: int, seconds: float) -> bool:
        """Wait until brokers have the answers of a dropped task; return whether they have them within `seconds`.

        Not for the thread of the calls.
        """
        written = threading.Event()

        def look() -> None:
            if node in self._nodes:
                self._nodes[node].when_written(partition, written.set)
            else:
                written.set()

        return not self._post(look) or written.wait(seconds)

    def pause(self) -> None:
        """Start no attempt until `resume`; those in flight go on."""
        with self._lock:
            self._is_paused = True
        self._post(self._pause)

    def resume(self) -> None:
        """Start attempts again after `pause`."""
        with self._lock:
            self._is_paused = False
        self._post(self._resume)

    def take_measured(self) -> dict[str, CallFigures]:
        """Return the figures of each operator since the last call, without operators that have made no call."""
        return {node: calls.counters.take() for node, calls in [*self._nodes.items()]}

    def close(self) -> None:
        """Cancel all calls, close the clients, and write the answers that exist; idempotent."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lambda: loop.create_task(self._end(loop)))
            thread.join(self._cancel_seconds + _CLOSE_SECONDS)
            if thread.is_alive():
                _log.error(
                    "The calls of %s do not end: %s blocks their loop. It must await what it waits for, or run in "
                    "Calls(threads=...).",
                    self._name,
                    self._running_function(loop, thread) or "a function",
                )
            if self._blocked is not None:
                self._blocked.end()
        if not self._writer.close(_CLOSE_SECONDS):
            _log.warning("Answers of %s are not written, and their calls are made again.", self._name)

    # ---------------------------------------- in the loop

    def _add(self, node: str, partition: int, entries: Sequence[Waiting]) -> None:
        self._partitions[node].add(partition)
        self._calls_of(node).add(partition, entries)

    def _drop(self, node: str, partition: int) -> None:
        self._partitions[node].discard(partition)
        if node in self._nodes:
            self._nodes[node].drop(partition)

    def _calls_of(self, node: str) -> NodeCalls:
        if node not in self._nodes:
            self._nodes[node] = NodeCalls(
                self._specs[node],
                self._topics[node],
                self._functions[node],
                self._writer,
                self._failed,
                self._standstill_of_loop(),
                self._cancel_seconds,
            )
            if self._is_paused:
                self._nodes[node].pause()
        return self._nodes[node]

    def _standstill_of_loop(self) -> Standstill:
        if self._standstill is None:
            loop, thread = asyncio.get_running_loop(), threading.current_thread()
            standstill = Standstill(loop.time, lambda seen: blocked.since(seen))
            running = partial(self._running_function, loop, thread)
            self._blocked = blocked = BlockedLoop(lambda: standstill.seen, loop.time, running)
            blocked.start(f"{thread.name}-look")
            self._standstill = standstill
            self._look(standstill)
        return self._standstill

    def _running_function(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> str | None:
        functions = {name: line for spec in self._specs.values() for name, line in named_functions(spec).items()}
        return running_function(loop, thread.ident or 0, functions)

    def _look(self, standstill: Standstill) -> None:
        """Look whether the process runs, again and again."""
        standstill.look()
        asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look, standstill)

    def _pause(self) -> None:
        for calls in self._nodes.values():
            calls.pause()

    def _resume(self) -> None:
        for calls in self._nodes.values():
            calls.resume()

    async def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel all calls, and end the loop."""
        closing = [loop.create_task(calls.close([*self._partitions[node]])) for node, calls in self._nodes.items()]
        if closing:
            _, left = await asyncio.wait(closing, timeout=self._cancel_seconds + _CLOSE_SECONDS / 2)
            for task in left:
                task.cancel()
            if left:
                _log.error("%d clients of %s are not closed in time.", len(left), self._name)
        loop.stop()

    # ---------------------------------------- the thread

    def _start_loop(self) -> None:
        with self._lock:
            if self._loop is not None or self._is_closed:
                return
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=logged_as(self._name)(self._run),
                args=(self._loop,),
                name=f"penstock-{self._name}-calls",
                daemon=True,
            )
            self._thread.start()

    def _post(self, do: Callable[[], None]) -> bool:
        """Call a function in the loop; return whether there is one."""
        with self._lock:
            if self._loop is None or self._is_closed:
                return False
            self._loop.call_soon_threadsafe(do)
            return True

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
