"""The client of one operator's calls, such as a session of HTTP or a pool of connections.

It is opened in a task of its own: all calls wait for the same client, and a call that ends does not end the opening. A
failed opening is tried again as the Retry of the operator says, at the cost of no call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from typing import Any, Final

from penstock.host.calls.attempt import AttemptOutcome, outcome_of
from penstock.host.calls.blocked_loop import open_task_name
from penstock.processor.call_function import checked_client, client_open_error, tries_again
from penstock.processor.calls import CallSpec, ClientFactory

_log = logging.getLogger(__name__)

_SLOW_SECONDS: Final = 30.0
"""The time after which an opening that goes on is logged."""

RunBlocking = Callable[[str, Callable[[], Any]], Awaitable[Any]]
"""Runs a blocking function, whose name is the first argument, and returns its result."""


async def at_once(name: str, function: Callable[[], Any]) -> Any:
    """Run a blocking function in the loop itself."""
    return function()


class OpenedClient:
    """Opens the client for the first call, and again for a later one if that failed.

    Args:
        spec: the operator.
        run: runs the methods of a context manager without coroutines.
        slow_seconds: the time after which an opening that goes on is logged.
    """

    def __init__(
        self,
        spec: CallSpec,
        run: RunBlocking = at_once,
        slow_seconds: float = _SLOW_SECONDS,
    ) -> None:
        self._spec = spec
        self._node = spec.node
        self._run = run
        self._slow_seconds = slow_seconds
        self._opening: asyncio.Task[AttemptOutcome] | None = None
        self._manager: AbstractAsyncContextManager[Any] | AbstractContextManager[Any] | None = None
        self._client: Any = None
        self._closing = asyncio.Event()
        self._attempts = 0

    async def get(self) -> Any:
        """Return the client, None without one; raises ClientOpenError if it cannot be opened."""
        if self._spec.open is None or self._manager is not None:
            return self._client
        if self._opening is None:
            made = outcome_of(self._open(self._spec.open))
            self._opening = asyncio.create_task(made, name=open_task_name(self._node))
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        await asyncio.wait((opening,))  # it goes on if the call is cancelled
        error = asyncio.CancelledError() if opening.cancelled() else opening.result().error
        if error is not None:
            raise client_open_error(self._spec, self._attempts, error) from error
        return self._client

    async def _open(self, make: ClientFactory) -> None:
        """Open the client, again after each failure until the last attempt, or the end."""
        self._attempts = 0
        while True:
            self._attempts += 1
            try:
                await self._open_once(make)
                return
            except Exception as error:
                if not tries_again(self._spec, error, self._attempts):
                    raise
                _log.warning("open of %s failed, and is tried again: %s: %s", self._node, type(error).__name__, error)
                with suppress(TimeoutError):
                    seconds = self._spec.rules.backoff.wait_ms(self._attempts) / 1000
                    await asyncio.wait_for(self._closing.wait(), seconds)
                if self._closing.is_set():
                    raise

    async def _open_once(self, make: ClientFactory) -> None:
        slow = asyncio.get_running_loop().call_later(self._slow_seconds, self._tell_slow)
        try:
            manager = checked_client(self._node, make())
            self._client = await self._entered(manager)
            self._manager = manager
        finally:
            slow.cancel()

    def _opened(self, opening: asyncio.Task[AttemptOutcome]) -> None:
        self._opening = None

    def _tell_slow(self) -> None:
        _log.warning(
            "open of %s has not returned after %d ms, and the calls wait for it: give the client a timeout.",
            self._node,
            round(self._slow_seconds * 1000),
        )

    async def _entered(self, manager: AbstractAsyncContextManager[Any] | AbstractContextManager[Any]) -> Any:
        if isinstance(manager, AbstractAsyncContextManager):
            return await manager.__aenter__()
        return await self._run(f"open of {self._node}", manager.__enter__)

    async def close(self) -> None:
        """Leave the context of the client, also of one that is being opened; an error of it is logged."""
        self._closing.set()
        if self._opening is not None:
            await asyncio.wait((self._opening,))
        manager, self._manager = self._manager, None
        try:
            if isinstance(manager, AbstractAsyncContextManager):
                await manager.__aexit__(None, None, None)
            elif manager is not None:
                leave = manager.__exit__
                await self._run(f"open of {self._node}", lambda: leave(None, None, None))
        except Exception:
            _log.exception("The client of %s could not be closed.", self._node)
