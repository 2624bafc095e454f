"""The recipe as workers get it: user functions, the driver's module path, and nothing that a worker does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from penstock import Processor, Record, Topology
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.spark.placement import place
from penstock.host.spark.recipe import Recipe, dump_recipe, load_recipe
from tests.spark import test_topologies
from tests.spark.test_topologies import word_count

_WORKER = """
import sys
from penstock.host.spark import sink, source, stage
from penstock.host.spark.recipe import load_recipe
recipe = load_recipe(open(sys.argv[1], "rb").read())
assert recipe.placement.partitions == (2, 2)
print(" ".join(sorted(name for name in sys.modules if name.startswith(("penstock", "pandas", "lmdb", "pyspark")))))
"""


def recipe_of(topology: Topology, tmp_path: Path) -> Recipe:
    built = topology.build("app")
    topics = {"in": 2, "out": 2}
    return Recipe(
        config=StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1"}, environment={}),
        topology=built,
        placement=place(built, topics, parallelism=2),
        topic_partitions=topics,
        begin={"in": [0, 0]},
        checkpoint=str(tmp_path),
        query_id="q",
        generation=1,
        transactional=False,
        control_directory=str(tmp_path),
    )


def test_a_worker_loads_neither_the_dsl_nor_the_lowering(tmp_path: Path) -> None:
    file = tmp_path / "recipe"
    cloudpickle.register_pickle_by_value(test_topologies)  # as functions of the user's main program are
    try:
        file.write_bytes(dump_recipe(recipe_of(word_count("in", "out"), tmp_path)))
    finally:
        cloudpickle.unregister_pickle_by_value(test_topologies)
    ran = subprocess.run(
        [sys.executable, "-c", _WORKER, str(file)],
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    loaded = set(ran.stdout.split())
    assert "penstock.task.stream_task" in loaded
    unwanted = {
        "penstock.dsl",
        "penstock.plan.lower",
        "penstock.streams",
        "penstock.broker",
        "penstock.testing",
        "pandas",
    }
    assert not unwanted & loaded


def test_functions_that_cannot_be_imported_go_by_value(tmp_path: Path) -> None:
    recipe = recipe_of(word_count("in", "out"), tmp_path)
    data = dump_recipe(recipe)
    loaded = load_recipe(data)
    assert loaded.topology.subtopologies[0].source_topics == ("in",)
    assert load_recipe(data) is loaded  # unpickled once a process


class Holding(Processor):
    def __init__(self, held: object) -> None:
        self.held = held

    def process(self, record: Record[str, str]) -> None:
        raise NotImplementedError


def test_what_cannot_be_pickled_is_an_error_at_start(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        topology = Topology().add_source("s", "in").add_processor("p", lambda: Holding(file), "s")
        with pytest.raises(StreamsError, match=r"cannot be sent to Spark's workers: .*such as a connection"):
            dump_recipe(recipe_of(topology.add_sink("k", "out", "p"), tmp_path))
