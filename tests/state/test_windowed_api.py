"""The protocols of window and session stores, and their implementations."""

from __future__ import annotations

import pytest

from penstock.state import windowed_api as api
from penstock.state.query.composite import CompositeReadOnlySessionStore, CompositeReadOnlyWindowStore
from penstock.state.read_only import ReadOnlySessionView, ReadOnlyWindowView
from penstock.state.session_store import TypedSessionStore
from penstock.state.window_store import TypedTimestampedWindowStore
from tests.support.protocols import differences


@pytest.mark.parametrize(
    ("protocol", "implementation"),
    [
        (api.EngineWindowStore, TypedTimestampedWindowStore),
        (api.EngineSessionStore, TypedSessionStore),
        (api.WindowStore, ReadOnlyWindowView),
        (api.SessionStore, ReadOnlySessionView),
        (api.ReadOnlyWindowStore, CompositeReadOnlyWindowStore),
        (api.ReadOnlySessionStore, CompositeReadOnlySessionStore),
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_class_has_the_methods_of_its_protocol(protocol: type, implementation: type) -> None:
    assert differences(protocol, implementation) == []
