"""Clients that stay open between calls, and are released when they are idle.

librdkafka queues log lines and errors until a client is polled. While all brokers are unavailable, it bootstraps again
several times a second and reports the same errors each time: the queue of a client that is not polled grows without a
limit, and each line takes longer to insert.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar, TypeVarTuple
from weakref import WeakSet

C = TypeVar("C")
Ts = TypeVarTuple("Ts")

IDLE_SECONDS: Final = 120.0
"""Time (s) without a call after which a client is released. Most epochs are shorter."""

_LOOK_SECONDS: Final = 10.0
"""Interval (s) between two checks for idle clients."""


class KeptClients(Generic[C, *Ts]):
    """The open clients of one kind, by the arguments that open them; thread-safe.

    A released client ends when no call uses it any more: only the reference to it is dropped.

    Args:
        open_client: opens a client without waiting for brokers.
        most: maximum number of clients; the least recently used one is released.
        now: the monotonic clock (s).
    """

    def __init__(self, open_client: Callable[[*Ts], C], most: int, now: Callable[[], float] = time.monotonic) -> None:
        self._open_client = open_client
        self._most = most
        self._now = now
        self._clients: OrderedDict[tuple[*Ts], tuple[C, float]] = OrderedDict()
        """Each client with the time (s) of its last use; the least recently used one is the first."""
        self._lock = threading.Lock()

    def __call__(self, *args: *Ts) -> C:
        """Return the client of these arguments; opens it if necessary."""
        with self._lock:
            known = self._clients.pop(args, None)
            client = self._open_client(*args) if known is None else known[0]
            self._clients[args] = client, self._now()
            # The reference is kept until the lock is free, because the end of a client may take long.
            oldest = self._clients.popitem(last=False) if len(self._clients) > self._most else None
        del oldest
        if known is None:
            RELEASING.start(self)
        return client

    def __len__(self) -> int:
        return len(self._clients)

    def keeps(self, client: C) -> bool:
        """Return whether `client` is open here. This is no use of it."""
        with self._lock:
            return any(each is client for each, _ in self._clients.values())

    def drop(self, *args: *Ts) -> C | None:
        """Release the client of these arguments and return it, None if it is not open."""
        with self._lock:
            return self._clients.pop(args, (None, 0.0))[0]

    def release_idle(self) -> None:
        """Release the clients without a call for `IDLE_SECONDS`."""
        self._release(self._now() - IDLE_SECONDS)

    def release_all(self) -> list[C]:
        """Release all clients and return them."""
        released = self._release(float("inf"))
        RELEASING.look()
        return released

    def forget_all(self) -> list[C]:
        """Begin without clients in a forked process, and return those of its parent.

        They have no threads here: a call would wait for ever, and their end stops the process.
        """
        self._lock = threading.Lock()
        forgotten = [client for client, _ in self._clients.values()]
        self._clients.clear()
        return forgotten

    def _release(self, unused_since: float) -> list[C]:
        released: list[C] = []
        with self._lock:
            while self._clients and next(iter(self._clients.values()))[1] <= unused_since:
                released.append(self._clients.popitem(last=False)[1][0])
        return released


def keep_open(most: int) -> Callable[[Callable[[*Ts], C]], KeptClients[C, *Ts]]:
    """Return a decorator for functions that open a client: it keeps up to `most` of them in this process."""
    return partial(KeptClients, most=most)


class _Releasing:
    """Releases idle clients of this process, in a thread that runs while clients are open."""

    def __init__(self) -> None:
        self._kept: WeakSet[KeptClients[Any, *tuple[Any, ...]]] = WeakSet()
        self._of_parent: list[Any] = []
        """The clients of the parent of a forked process, which must not end here."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def forked(self) -> None:
        """Begin without clients and thread, which a forked process does not have; the thread may have held locks."""
        self._changed = threading.Condition()
        self._thread = None
        for each in self._kept:
            self._of_parent += each.forget_all()

    def start(self, clients: KeptClients[Any, *tuple[Any, ...]]) -> None:
        """Release these clients when they are idle."""
        with self._changed:
            self._kept.add(clients)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-idle-clients", daemon=True)
                self._thread.start()

    def look(self) -> None:
        """Let the thread look for idle clients now; it ends if no client is open."""
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        while self._waited():
            self._release()

    def _release(self) -> None:
        for each in self._open():
            each.release_idle()

    def _waited(self) -> bool:
        """Wait until the next check; return False if no client is open."""
        with self._changed:
            if self._open():
                self._changed.wait(_LOOK_SECONDS)
            if self._open():
                return True
            self._thread = None
            return False

    def _open(self) -> list[KeptClients[Any, *tuple[Any, ...]]]:
        return [each for each in self._kept if len(each)]


RELEASING = _Releasing()
"""The idle clients of this process."""

os.register_at_fork(after_in_child=RELEASING.forked)
