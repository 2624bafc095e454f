"""The interface of the user's listener for restores."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.record import TopicPartition
from penstock.state.restore_listener import StateRestoreListener

REQUIRED = ("on_restore_start", "on_batch_restored", "on_restore_end")


def listener(*methods: str) -> Any:
    """Return a listener with only these methods."""
    return type("Listener", (StateRestoreListener,), {name: lambda self, *_: None for name in methods})()


@pytest.mark.parametrize("missing", REQUIRED)
def test_a_listener_needs_each_method_that_kafka_requires(missing: str) -> None:
    with pytest.raises(TypeError, match=missing):
        listener(*(name for name in REQUIRED if name != missing))


def test_a_listener_may_ignore_suspended_restores() -> None:
    assert listener(*REQUIRED).on_restore_suspended(TopicPartition("topic", 0), "store", 5) is None
