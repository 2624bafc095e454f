"""Skips the tests of tables where the extra `lake` is not installed."""

from __future__ import annotations

import pytest

pytest.importorskip("pyiceberg", reason="the extra lake is not installed")
pytest.importorskip("deltalake", reason="the extra lake is not installed")
