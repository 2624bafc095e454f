"""Fixtures of the tests of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.host.calls.runner import CallRunner
from penstock.processor.calls import CallSpec
from tests.host.calls.support import (
    KeptAnswers,
    running,
)


@pytest.fixture
def answers() -> KeptAnswers:
    return KeptAnswers()


@pytest.fixture
def run(answers: KeptAnswers) -> Iterator[Callable[..., CallRunner]]:
    """A function that starts a runner of operators; it ends with the test."""
    runners: list[CallRunner] = []

    def started(*specs: CallSpec, **options: Any) -> CallRunner:
        runners.append(running(answers, *specs, **options))
        return runners[-1]

    yield started
    for runner in runners:
        runner.close()
