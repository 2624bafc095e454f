"""Fixtures for all tests; each family lives in its own module under tests/support."""

from hypothesis import settings

pytest_plugins = ["tests.support.brokers"]

settings.register_profile("no-deadline", deadline=None)  # no test depends on how long something takes
settings.load_profile("no-deadline")
