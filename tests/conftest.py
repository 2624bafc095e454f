"""Fixtures for all tests; each family lives in its own module under tests/support."""

pytest_plugins = ["tests.support.brokers"]
