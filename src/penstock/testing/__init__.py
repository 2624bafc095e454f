"""Test tools for applications.

TopologyTestDriver tests topologies and MockProcessorContext single processors, both without a broker or Spark.
EmbeddedBroker serves tests that need Kafka.

Names are imported lazily, so a test with a broker imports no topologies.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.testing.driver import TopologyTestDriver
    from penstock.testing.mock_context import (
        CapturedCall,
        CapturedForward,
        CapturedPunctuator,
        MockProcessorContext,
    )
    from penstock.testing.record import TestRecord
    from penstock.testing.store_views import KeyValueStoreFacade, WindowStoreFacade
    from penstock.testing.topics import TestInputTopic, TestOutputTopic
    from penstock_broker.common.clock import MockClock
    from penstock_broker.embedded_broker import EmbeddedBroker

_MODULE_OF: Final = {
    "CapturedCall": "penstock.testing.mock_context",
    "CapturedForward": "penstock.testing.mock_context",
    "CapturedPunctuator": "penstock.testing.mock_context",
    "EmbeddedBroker": "penstock_broker.embedded_broker",
    "KeyValueStoreFacade": "penstock.testing.store_views",
    "MockClock": "penstock_broker.common.clock",
    "MockProcessorContext": "penstock.testing.mock_context",
    "TestInputTopic": "penstock.testing.topics",
    "TestOutputTopic": "penstock.testing.topics",
    "TestRecord": "penstock.testing.record",
    "TopologyTestDriver": "penstock.testing.driver",
    "WindowStoreFacade": "penstock.testing.store_views",
}

__all__ = [
    "CapturedCall",
    "CapturedForward",
    "CapturedPunctuator",
    "EmbeddedBroker",
    "KeyValueStoreFacade",
    "MockClock",
    "MockProcessorContext",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TopologyTestDriver",
    "WindowStoreFacade",
]


def __getattr__(name: str) -> Any:
    """Import the public name `name` on first access; raises AttributeError for any other."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
    value = vars(import_module(_MODULE_OF[name]))[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
