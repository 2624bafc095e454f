"""Clients that are kept open: which are released, and when."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from weakref import ReferenceType, ref

import pytest

from penstock.client import kept_clients
from penstock.client.kept_clients import IDLE_SECONDS, KeptClients, keep_open
from tests.support.open_clients import end_idle_clients
from tests.support.waiting import until

THREAD = "penstock-idle-clients"


class Client:
    """A client of a name."""

    def __init__(self, name: str) -> None:
        self.name = name


class Clock:
    """A clock that stands still between two settings."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def no_garbage_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def opened(kept: KeptClients[Client, str], *names: str) -> list[ReferenceType[Client]]:
    return [ref(kept(name)) for name in names]


def test_a_client_is_opened_once() -> None:
    kept = KeptClients(Client, 2)
    assert kept("a") is kept("a")
    assert kept("b") is not kept("a")
    assert (kept("a").name, kept("b").name) == ("a", "b")
    kept.release_all()


def test_the_least_recently_used_client_is_released_when_there_are_too_many() -> None:
    kept = KeptClients(Client, 2)
    a, b = opened(kept, "a", "b")
    kept("a")
    (c,) = opened(kept, "c")
    assert [each() is not None for each in (a, b, c)] == [True, False, True]
    kept.release_all()


def test_idle_clients_are_released_and_opened_again() -> None:
    clock = Clock()
    kept = KeptClients(Client, 3, clock)
    a, b = opened(kept, "a", "b")
    clock.now = IDLE_SECONDS - 1
    kept("a")
    kept.release_idle()
    assert (a() is not None, b() is not None) == (True, True)
    clock.now = IDLE_SECONDS
    kept.release_idle()
    assert (a() is not None, b()) == (True, None)
    clock.now = 2 * IDLE_SECONDS - 1
    kept.release_idle()
    assert (a(), len(kept)) == (None, 0)
    assert kept("a").name == "a"
    kept.release_all()


def test_a_released_client_that_a_call_uses_stays_open() -> None:
    clock = Clock()
    kept = KeptClients(Client, 3, clock)
    used = kept("a")
    assert kept.keeps(used)
    clock.now = IDLE_SECONDS
    kept.release_idle()
    assert not kept.keeps(used)
    assert used.name == "a"
    assert kept("a") is not used
    kept.release_all()


def test_a_dropped_client_is_returned_once() -> None:
    kept = KeptClients(Client, 2)
    client = kept("a")
    assert kept.drop("a") is client
    assert kept.drop("a") is None
    assert kept("a") is not client
    kept.release_all()


def test_a_client_that_cannot_be_opened_is_opened_by_the_next_call() -> None:
    failures = [OSError("no client")]

    @keep_open(most=1)
    def open_client(name: str) -> Client:
        if failures:
            raise failures.pop()
        return Client(name)

    with pytest.raises(OSError, match="no client"):
        open_client("a")
    assert open_client("a").name == "a"
    open_client.release_all()


def test_a_thread_releases_idle_clients_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    end_idle_clients(monkeypatch)
    kept = KeptClients(Client, 2)
    clients = opened(kept, "a", "b")
    assert until(lambda: not any(each() for each in clients))
    assert until(lambda: not threads())
    clients = opened(kept, "a")
    assert until(lambda: not any(each() for each in clients))


def test_the_thread_ends_with_the_last_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_clients, "_LOOK_SECONDS", 3600.0)
    assert until(lambda: not threads())
    first, second = KeptClients(Client, 1), KeptClients(Client, 1)
    opened(first, "a")
    opened(second, "a")
    assert len(threads()) == 1
    first.release_all()
    assert len(threads()) == 1
    second.release_all()
    assert until(lambda: not threads())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_releases_its_clients_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_clients, "_LOOK_SECONDS", 3600.0)
    kept = KeptClients(Client, 2)
    opened(kept, "a")
    assert threads()
    child = os.fork()
    if child == 0:  # the memory of this process, without its threads
        try:
            end_idle_clients(monkeypatch)
            clients = opened(kept, "b")
            os._exit(0 if until(lambda: not any(each() for each in clients)) else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    kept.release_all()
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_neither_uses_nor_ends_the_clients_of_its_parent() -> None:
    kept = KeptClients(Client, 2)
    inherited = kept("a")
    of_parent = ref(inherited)
    child = os.fork()
    if child == 0:
        try:
            is_new = kept("a") is not inherited
            del inherited
            kept.release_all()
            os._exit(0 if is_new and of_parent() is not None else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert kept("a") is inherited
    kept.release_all()


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == THREAD]
