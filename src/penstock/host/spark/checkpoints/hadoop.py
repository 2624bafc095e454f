"""URIs of Hadoop, and so of Spark, for directories that Penstock writes through pyarrow."""

from __future__ import annotations

from urllib.parse import urlsplit

from penstock.errors import ConfigError
from penstock.host.storage.files import Files

_SCHEMES = {
    "s3": "s3a",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
}
"""Scheme of a URI here -> Hadoop's scheme of the same place."""


def hadoop_uri(files: Files) -> str:
    """Return Hadoop's URI for the directory of `files`; raises ConfigError without such a URI."""
    if files.local_path is not None:
        return f"file://{files.local_path}" if "://" in files.uri else files.local_path
    parts = urlsplit(files.uri)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None:
        raise ConfigError(
            f"Spark cannot write its own checkpoint at {files.uri}, which Hadoop does not support: set "
            "penstock.spark.checkpoint.dir to a directory on a file system that Hadoop supports and that outlives "
            "the machine."
        )
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
