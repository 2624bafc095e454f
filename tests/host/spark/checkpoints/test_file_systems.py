"""A checkpoint on a file system that is not a local disk: exactly once under crashes, old files deleted, bases rebuilt.

Spark keeps its own checkpoint where it can, named by `penstock.spark.checkpoint.dir`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.host.spark.checkpoints.checkpoint import checkpoint_of
from penstock.host.spark.driver.spark_host import SparkHost
from tests.host.spark.crashes import Crashes, run_to_end_over_kills
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import lines
from tests.host.test_topologies import final, random_lines, word_count

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(2, 2)]


@pytest.mark.parametrize("scheme", ["fsspec+memory", "fsspec+file"])
def test_counts_are_exact_with_a_checkpoint_elsewhere(
    spark_runner: SparkRunner,
    application: str,
    topics: tuple[str, str],
    tmp_path: Path,
    crashes: Callable[..., Crashes],
    scheme: str,
) -> None:
    values = {
        "penstock.checkpoint.dir": f"{scheme}://{tmp_path}/checkpoint",
        "penstock.manifests.retained": 2,
    }
    config = spark_runner.config(application, values)
    installed = crashes(7, 0.04, 8)
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    expected: Counter[str] = Counter()
    for part in range(5):
        texts = random_lines(part, 20)
        expected.update(word for line in texts for word in line.split())
        spark_runner.write(topics[0], lines(texts, partitions=2))
        shutil.rmtree(Path(config["state.dir"]) / application / "bases", ignore_errors=True)
        run_to_end_over_kills(query)
    assert sum(installed.struck.values()) >= 3
    assert final(spark_runner.read(topics[1])) == expected
    checkpoint = checkpoint_of(config)
    manifest = spark_runner.manifest(config)
    assert manifest.epoch - checkpoint.first_epoch() < 4
    assert checkpoint.local_path is None


def test_cleaning_up_leaves_the_checkpoints_of_data_frames(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    own = Path(spark_runner.config(application)["state.dir"]) / application
    values = {
        "penstock.checkpoint.dir": f"fsspec+file://{tmp_path}/checkpoint",
        "penstock.spark.checkpoint.dir": str(own / "spark"),
    }
    config = spark_runner.config(application, values)
    query = InlineQuery(word_count(*topics), config, spark_runner.admin)
    spark_runner.write(topics[0], lines(["a b"], partitions=2))
    query.run_to_end()
    frames = checkpoint_of(config).data_frames()
    frames.write("kept", b"by Spark")
    SparkHost(word_count(*topics).build(application), config).clean_up()
    assert not (own / "bases").exists()
    assert frames.read("kept") == b"by Spark"
    query.restart()
    spark_runner.write(topics[0], lines(["a"], partitions=2))
    query.run_to_end()
    assert final(spark_runner.read(topics[1])) == {"a": 2, "b": 1}
