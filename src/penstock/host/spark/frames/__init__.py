"""Streaming DataFrames as sources of an application, its output as DataFrames, and topics as a data source."""
