"""The restore thread: what it closes at the end of an instance."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from unittest.mock import Mock

import pytest

from penstock.host.threads import task_threads
from penstock.host.threads import vocabulary as v
from penstock.host.threads.task_threads import TaskThreads

SECONDS = 60.0


def test_copies_are_closed_though_the_restore_thread_takes_longer_than_the_end_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_threads, "_END_SECONDS", 0.0)
    is_asking, may_answer, closed = threading.Event(), threading.Event(), threading.Event()

    def purge(*_: object) -> None:
        is_asking.set()
        assert may_answer.wait(SECONDS)

    opener, standbys = Mock(purge=purge), Mock(close=closed.set)
    standbys.advance.return_value = None
    threads = TaskThreads("test", Mock(), opener, standbys, Mock(), Mock(), Mock(updating=nullcontext))
    threads.restore(v.Purge({}))
    assert is_asking.wait(SECONDS)
    threads.close()
    assert not closed.is_set()  # the thread may be using them
    may_answer.set()
    assert closed.wait(SECONDS)
