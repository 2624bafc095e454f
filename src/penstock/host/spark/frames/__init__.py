"""Streaming DataFrames as sources of an application, its output as DataFrames, and topics as a data source."""

import pyspark  # noqa: F401  # before pyarrow: an error for a missing package names the extra that brings both
