"""Tests without broker or Spark: TopologyTestDriver for topologies, MockProcessorContext for single processors."""

from __future__ import annotations

from penstock.clock import MockClock
from penstock.testing.driver import TopologyTestDriver
from penstock.testing.mock_context import CapturedForward, CapturedPunctuator, MockProcessorContext
from penstock.testing.record import TestRecord
from penstock.testing.store_views import KeyValueStoreFacade, WindowStoreFacade
from penstock.testing.topics import TestInputTopic, TestOutputTopic

__all__ = [
    "CapturedForward",
    "CapturedPunctuator",
    "KeyValueStoreFacade",
    "MockClock",
    "MockProcessorContext",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TopologyTestDriver",
    "WindowStoreFacade",
]
