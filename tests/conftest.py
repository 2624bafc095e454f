"""Fixtures for all tests; each family lives in its own module under tests/support."""

import signal

from hypothesis import settings

pytest_plugins = ["tests.support.brokers", "tests.support.commands", "tests.support.dashboard"]

settings.register_profile("no-deadline", deadline=None)  # no test depends on how long something takes
settings.load_profile("no-deadline")

# A shell has its background jobs ignore Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
