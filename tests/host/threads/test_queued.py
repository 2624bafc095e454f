"""A thread does what it is given before what it does in between."""

from __future__ import annotations

import threading

from penstock.host.threads.queued import QueuedThread


def test_what_waits_comes_before_what_is_done_in_between() -> None:
    done: list[str] = []
    all_given, idle = threading.Event(), threading.Event()

    def do(item: str) -> None:
        assert all_given.wait(60)
        done.append(item)

    def between() -> float | None:
        if done:
            done.append("between")
            idle.set()
        return None

    thread = QueuedThread("test", do, between)
    for item in ("one", "two", "three"):
        thread.put(item)
    all_given.set()
    assert idle.wait(60)
    assert thread.close(60)
    assert done[:4] == ["one", "two", "three", "between"]


def test_the_function_may_take_the_next_items_itself_but_not_the_end() -> None:
    taken: list[str | None] = []
    all_given = threading.Event()

    def do(item: str) -> None:
        assert all_given.wait(60)
        taken.append(item)
        while (following := thread.take_next()) is not None:
            taken.append(following)

    thread = QueuedThread("test", do)
    for item in ("one", "two", "three"):
        thread.put(item)
    closing = threading.Thread(target=thread.close, args=(60,))
    closing.start()
    all_given.set()
    closing.join(60)
    assert taken == ["one", "two", "three"]
    assert thread.close(0), "it has seen the end"
