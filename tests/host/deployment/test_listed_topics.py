"""The topics of a cluster whose brokers hear of a new topic one after the other."""

from __future__ import annotations

from typing import cast

import pytest

from penstock.client.api import Admin
from penstock.host.deployment import listed_topics as module
from penstock.host.deployment.listed_topics import listed_topics


class AdminOfLateBrokers:
    """Lists what the brokers know at each request; the last answer is repeated."""

    def __init__(self, *answers: dict[str, int]) -> None:
        self._answers = list(answers)
        self.requests = 0

    def topics(self) -> dict[str, int]:
        self.requests += 1
        return self._answers[min(self.requests, len(self._answers)) - 1]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.001)


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    admin = AdminOfLateBrokers({"in": 2}, {"in": 2}, {"in": 2, "out": 1})
    assert listed_topics(cast(Admin, admin), ["in", "out"]) == {"in": 2, "out": 1}


def test_brokers_that_know_all_topics_are_asked_once() -> None:
    admin = AdminOfLateBrokers({"in": 2, "other": 1})
    assert listed_topics(cast(Admin, admin), ["in"]) == {"in": 2, "other": 1}
    assert admin.requests == 1


def test_a_topic_that_stays_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.05)
    assert listed_topics(cast(Admin, AdminOfLateBrokers({"in": 2})), ["in", "out"]) == {"in": 2}
