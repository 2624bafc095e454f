"""Work of Spark that lasts, and that SIGTERM and Ctrl-C interrupt.

The main thread must not be interrupted while it talks to the JVM: its next call would get the answer that is still on
its way. So such work has a thread of its own, for which the main thread waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.host.spark.session import is_connect
from penstock.termination import undisturbed

_T = TypeVar("_T")

_CANCEL_SECONDS: Final = 20.0
"""The time in which work must end after it is cancelled; after it, the interruption goes on without its end."""

_AGAIN_SECONDS: Final = 0.5
"""The wait before work is cancelled again: it may have begun its next job meanwhile."""


class CancellableJobs:
    """The jobs of one thread, which another thread cancels.

    Args:
        spark: the session of their DataFrames.
        name: of these jobs, and of no others.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name

    def begin(self) -> None:
        """Let all later jobs of the current thread be among these."""
        if is_connect(self._spark):
            self._spark.addTag(self._name)
        else:  # interruptTag does not find the jobs of adaptive plans
            self._spark.sparkContext.setJobGroup(self._name, self._name)

    def cancel(self) -> None:
        """Cancel those that run now."""
        if is_connect(self._spark):
            self._spark.interruptTag(self._name)
        else:
            self._spark.sparkContext.cancelJobGroup(self._name)


def interruptible(spark: SparkSession, work: Callable[[], _T], cancel: Callable[[], object]) -> _T:
    """Do `work` in a thread of its own; return its result, or raise its error.

    If this thread is interrupted meanwhile, it cancels the work, waits for its end, and goes on with the interruption.

    Args:
        spark: the session of the work.
        work: the work.
        cancel: cancels what Spark does for the work now, if it does anything.
    """
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    thread = InheritableThread(target=run, session=spark, daemon=True)
    with undisturbed():
        thread.start()
    try:
        return outcome.result()
    except (KeyboardInterrupt, SystemExit):
        deadline = time.monotonic() + _CANCEL_SECONDS
        while not outcome.done() and time.monotonic() < deadline:
            with undisturbed(), suppress(Exception):  # Spark may have ended
                cancel()
            thread.join(_AGAIN_SECONDS)
        raise
