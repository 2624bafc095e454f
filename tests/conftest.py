"""Fixtures for all tests; each family lives in its own module under tests/support."""

import atexit
import gc
import logging
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from penstock.task import execution, processor_topology
from penstock_broker.common.log_limits import forget_lines
from tests.support.seeds import FIXED

pytest_plugins = ["tests.support.brokers", "tests.support.commands", "tests.support.dashboard"]

# What tests keep where the platform keeps state of a user does not stand among the state of this one.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="penstock-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

processor_topology.FEWEST_ROWS = 0
execution.FEWEST_ROWS = 0  # batches of tests are small, and columns are to be tested; test_execution tests the bound

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "100"))
"""How many examples Hypothesis draws for a test that names no number; `make quick` and `make test` take fewer."""

# No test depends on how long something takes.
settings.register_profile("of-a-run", deadline=None, derandomize=FIXED, max_examples=EXAMPLES)
settings.load_profile("of-a-run")

# A shell has its background jobs ignore Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


BROKERS = frozenset(("broker", "embedded_broker", "real_kafka", "real_kafka_cluster"))
"""Fixtures of brokers in processes of their own."""

LONG = ("crash", "packaging", "slow")
"""Marks of tests that take long, those of the longest first."""


def _length(item: pytest.Item) -> tuple[float, int]:
    """Return a key that sorts tests by how long they take, the longest first: those that may run longest, then LONG."""
    timeout = item.get_closest_marker("timeout")
    place = next((place for place, mark in enumerate(LONG) if item.get_closest_marker(mark)), len(LONG))
    return -(timeout.args[0] if timeout else 0), place


def _group(item: pytest.Item) -> str:
    """Return the name of the group of a test, empty for a test without a group."""
    return "_".join(sorted({mark.args[0] for mark in item.iter_markers("xdist_group")}))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, and let it pass over them afterwards.

    A worker holds a million objects of 12,000 tests until its end: each full collection would look at all of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that asks for a broker in a process of its own, which `make quick` leaves out."""
    if not BROKERS.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker("broker")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have `--dist loadgroup` keep groups together, and begin with what takes long, so that no worker is left with it:
    groups, the largest first, as one worker runs all tests of a group; then tests by their length.

    pytest-xdist 3.8 tells groups by the end of ids, and writes it into a field that pytest does not read since 9.2
    (https://github.com/pytest-dev/pytest-xdist/issues/1386): every worker would start a Spark and a Kafka.
    """
    if not config.getoption("loadgroup", default=False):
        return
    sizes = Counter(_group(item) for item in items)
    sizes[""] = 0
    items.sort(key=lambda item: (-sizes[_group(item)], _length(item)))
    for item in items:
        group = _group(item)
        if group and not item.nodeid.endswith(f"@{group}"):
            item._id = type(item.id).parse(f"{item.nodeid}@{group}")


@pytest.fixture(autouse=True)
def no_line_is_left_out() -> None:
    """Forget the log lines of earlier tests, so that none is left out."""
    forget_lines()


@pytest.fixture(autouse=True)
def log_is_left_as_it_was() -> Iterator[None]:
    """Take back what a command that a test ran in this process has set, so that later tests see their lines."""
    loggers = [logging.getLogger(name) for name in (None, "penstock", "penstock_broker", "penstock.client.librdkafka")]
    before = [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    yield
    for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.propagate = propagate
        for handler in [each for each in logger.handlers if each not in handlers]:
            logger.removeHandler(handler)
