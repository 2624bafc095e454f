"""Fixtures for all tests; each family lives in its own module under tests/support."""

import atexit
import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import settings

from penstock.log_limits import forget_lines

pytest_plugins = ["tests.support.brokers", "tests.support.commands", "tests.support.dashboard"]

# What tests keep where the platform keeps state of a user does not stand among the state of this one.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="penstock-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

settings.register_profile("no-deadline", deadline=None)  # no test depends on how long something takes
settings.load_profile("no-deadline")

# A shell has its background jobs ignore Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_line_is_left_out() -> None:
    """Forget the log lines of earlier tests, so that none is left out."""
    forget_lines()
