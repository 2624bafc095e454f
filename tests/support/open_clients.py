"""The clients of librdkafka in this process."""

from __future__ import annotations

import gc
from collections.abc import Collection

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from penstock.client import kept_clients


def clients() -> list[object]:
    """Return the clients of librdkafka that there are in this process."""
    return [each for each in gc.get_objects() if isinstance(each, (AdminClient, Consumer, Producer))]


def clients_but(before: Collection[object]) -> list[object]:
    """Return those that were not there `before`."""
    return [each for each in clients() if not any(each is other for other in before)]


def end_idle_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each client idle as soon as no call uses it."""
    monkeypatch.setattr(kept_clients, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(kept_clients, "_LOOK_SECONDS", 0.05)
    kept_clients.RELEASING.look()
