"""The package: its public names, and that it loads only what is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import penstock


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_public_name_can_be_imported_and_is_documented(name: str) -> None:
    assert penstock.__getattr__(name).__doc__


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'KTabel'"):
        penstock.__getattr__("KTabel")


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after `statement`."""
    program = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    return set(ran.stdout.split())


def test_the_package_itself_loads_nothing() -> None:
    assert not {name for name in loaded_by("import penstock") if name.startswith(("penstock.", "numpy", "pyspark"))}


def test_writing_and_testing_a_topology_needs_neither_spark_nor_a_client() -> None:
    loaded = loaded_by("from penstock import StreamsBuilder, KafkaStreams\nimport penstock.testing")
    assert not {"pyspark", "confluent_kafka", "lmdb", "kio", "pyarrow", "prometheus_client", "starlette"} & loaded


def test_the_threads_host_loads_no_arrow() -> None:
    """It takes 40 MB, and is loaded for large columns, and for snapshots on another file system."""
    as_installed = "import sys; sys.modules['hypothesis'] = sys.modules['pandas'] = None"  # as they may import Arrow
    loaded = loaded_by(f"{as_installed}\nimport penstock.host.threads.host, penstock.host.threads.workers.worker")
    assert not {"pyarrow", "pyspark", "polars", "duckdb", "starlette"} & loaded


def test_the_broker_loads_nothing_heavy() -> None:
    loaded = loaded_by("import penstock_broker.__main__")
    assert not {"numpy", "pyarrow", "pandas", "pyspark", "confluent_kafka", "rich", "typer"} & loaded


def test_a_function_on_columns_loads_only_the_library_that_it_names() -> None:
    loaded = loaded_by(
        """
import numpy as np
from penstock import Consumed, Serdes, StreamsBuilder, vectorized
from penstock.testing import TopologyTestDriver
def twice(values: np.ndarray) -> np.ndarray:
    return values * 2
@vectorized
def same(values: list[float]) -> list[float]:
    return values
builder = StreamsBuilder()
stream = builder.stream("in", Consumed.with_(Serdes.string(), Serdes.double()))
stream.map_values(twice).map_values(same).to("out")
with TopologyTestDriver(builder.build(), {"default.value.serde": Serdes.double()}) as driver:
    driver.create_input_topic("in", Serdes.string(), Serdes.double()).pipe_value_list([1.0] * 50)
"""
    )
    assert "numpy" in loaded
    assert not {"pyarrow", "pandas", "polars"} & loaded
