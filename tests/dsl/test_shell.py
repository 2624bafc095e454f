"""Streams, tables and groups that are used as Python collections, or by names of Java."""

from __future__ import annotations

import pytest

from tests.support.programs import shown_by


def test_a_name_of_java_has_one_suggestion(caplog: pytest.LogCaptureFixture) -> None:
    shown = shown_by('b.stream("in").mapValues(str.upper)', caplog)
    assert shown.endswith("AttributeError: KStream has no mapValues: write map_values.\n")
