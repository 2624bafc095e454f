"""Streaming DataFrames as sources and sinks of an application, and topics as a data source."""

import pyspark  # noqa: F401  # before pyarrow: an error for a missing package names the extra that brings both
