"""The names that Hadoop has for directories of Penstock."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.host.spark.checkpoints.hadoop import hadoop_uri
from penstock.host.storage.files import Files


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("/a/b", "/a/b"),
        ("file:///a/b/", "file:///a/b"),
        ("s3://bucket/a/b/?endpoint_override=http://127.0.0.1:1&region=x", "s3a://bucket/a/b"),
        ("s3://key:secret@bucket/a?region=x", "s3a://bucket/a"),
    ],
)
def test_spark_is_given_the_name_of_hadoop(uri: str, named: str) -> None:
    assert hadoop_uri(Files(uri)) == named


def test_what_hadoop_does_not_know_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set penstock\.spark\.checkpoint\.dir"):
        hadoop_uri(Files(f"fsspec+memory://{tmp_path}"))
