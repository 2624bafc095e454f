"""The errors of calls to a session that is gone."""

from __future__ import annotations

import sys

from py4j.protocol import Py4JError

JVM_IS_GONE = (Py4JError, ConnectionError)
"""The exceptions of calls after the JVM has ended.

Errors of Spark itself arrive as an exception of pyspark, or as a Py4JJavaError. The latter is also a Py4JError, so
check for it first.
"""


def connect_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of calls to a server of Spark Connect.

    They are of the server, or say that it does not answer. Nothing if this process has no such session: the module of
    the exceptions needs more packages.
    """
    module = sys.modules.get("pyspark.errors.exceptions.connect")
    return () if module is None else (module.SparkConnectException,)


def session_errors() -> tuple[type[Exception], ...]:
    """Return all exceptions of calls to a session that may be gone."""
    return (*JVM_IS_GONE, *connect_errors())
