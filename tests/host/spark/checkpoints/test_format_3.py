"""Checkpoints and savepoints of format 3, whose layouts did not name the stores that keep headers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock import QueryableStoreTypes, StoreQueryParameters, StreamsBuilder, StreamsConfig, savepoints
from penstock.errors import IncompatibleCheckpointError
from penstock.host.open import open_state
from penstock.host.spark.checkpoints.checkpoint import FORMAT, FORMAT_3, Checkpoint
from penstock.host.spark.checkpoints.documents import unsealed
from penstock.host.storage.sealed_files import sealed
from tests.host.spark.support import SparkRunner
from tests.host.test_store_format import STORES, Application, part, program
from tests.support.brokers import EMBEDDED_ONLY

pytestmark = EMBEDDED_ONLY


@pytest.fixture
def stopped(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> Application:
    """An application that has run its first part with headers, on a checkpoint of format 3."""
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 1, target: 1})
    application = Application(spark_runner, unique_name("app"), source, target)
    spark_runner.write(source, part(0))
    application.run("headers")
    make_format_3(Path(application.config("headers").checkpoint_directory()))
    return application


def make_format_3(directory: Path) -> None:
    """Write metadata and manifests as before format 4."""
    for path in (directory / "metadata", *directory.glob("manifests/*")):
        fields = orjson.loads(unsealed(path.read_bytes(), ""))
        fields["format"] = FORMAT_3
        for layouts in fields.get("shape", {}).get("stores", {}).values():
            layouts.update({name: layout.removesuffix(", with headers") for name, layout in layouts.items()})
        for kept in fields.get("removed", {}).values() if path.name == "metadata" else ():
            kept["layout"] = kept["layout"].removesuffix(", with headers")
        path.write_bytes(sealed(orjson.dumps(fields)))


def metadata_of(config: StreamsConfig) -> Any:
    metadata = Checkpoint(config.checkpoint_directory()).read_metadata()
    assert metadata is not None
    return metadata


def test_it_goes_on_in_its_version_with_the_format_that_it_had(spark_runner: SparkRunner, stopped: Application) -> None:
    config = stopped.config("headers")
    before = metadata_of(config)
    assert (before.format, before.shape["stores"]["0"]["table"]) == (FORMAT_3, "timestamped_key_value")
    assert savepoints.diff(program(stopped.source, stopped.target), config, config).differences == ()
    spark_runner.write(stopped.source, part(1))
    stopped.run("headers")
    after = metadata_of(config)
    assert (after.format, after.shape["stores"]["0"]["table"]) == (FORMAT, "timestamped_key_value, with headers")
    assert after.query_id == before.query_id


def test_another_format_is_noticed(
    spark_runner: SparkRunner, stopped: Application, unique_name: Callable[[str], str]
) -> None:
    config, target = stopped.config("default"), unique_name("out")
    spark_runner.create_topics({target: 1})
    topology = program(stopped.source, stopped.target)
    assert savepoints.diff(topology, config, config).headers["table"] is False
    table = StoreQueryParameters.from_name_and_type("table", QueryableStoreTypes.key_value_store())
    with open_state(topology, config) as state, pytest.raises(IncompatibleCheckpointError, match="with headers"):
        state.store(table).get("a")
    spark_runner.write(stopped.source, part(1))
    stopped.run("default")
    lasting = Application(spark_runner, unique_name("lasting"), stopped.source, target)
    lasting.run("default")
    assert stopped.stores("default") == lasting.stores("default")
    assert stopped.output() == lasting.output()


def test_a_savepoint_is_restored_into_another_format(
    spark_runner: SparkRunner, stopped: Application, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    saved = str(tmp_path / "saved")
    savepoints.take(stopped.config("headers"), saved)
    again = {"application.id": unique_name("again"), "penstock.checkpoint.dir": str(tmp_path / "again")}
    savepoints.restore(saved, stopped.config("default", **again))
    spark_runner.write(stopped.source, part(1))
    before = len(stopped.output())
    stopped.run("default", **again)
    restored = stopped.output()[before:]
    stopped.run("headers")
    assert stopped.output()[before + len(restored) :] == restored != []


def test_a_program_that_cannot_be_loaded_is_asked_for_and_nothing_is_changed(
    spark_runner: SparkRunner, stopped: Application
) -> None:
    config = stopped.config("headers")
    checkpoint, metadata = Checkpoint(config.checkpoint_directory()), metadata_of(config)
    stored = checkpoint.read_description(metadata)
    assert stored is not None
    checkpoint.write_description(metadata.plan, b"no pickle")
    for store_format in ("headers", "default"):
        with pytest.raises(IncompatibleCheckpointError, match=r"Start that program once with its modules") as caught:
            stopped.run(store_format)
        assert "did not record which stores keep headers (dsl.store.format)" in str(caught.value)
    assert metadata_of(config) == metadata
    checkpoint.write_description(metadata.plan, stored)
    stopped.run("headers")
    assert metadata_of(config).format == FORMAT


def test_removed_stores_come_back_in_another_format(spark_runner: SparkRunner, stopped: Application) -> None:
    config = stopped.config("headers")
    builder = StreamsBuilder()
    builder.stream(stopped.source).to(stopped.target)
    spark_runner.program(builder.build(), config).close()
    kept = metadata_of(config).removed
    assert {name for name, store in kept.items() if store.layout.endswith(", with headers")} == {
        "table",
        "windows",
        "sessions",
        "final",
    }
    make_format_3(Path(config.checkpoint_directory()))
    stopped.run("default")
    plain = stopped.stores("default")
    assert set(plain) == set(STORES)
    assert plain["table"][b"a"][8:] == b"a0+a30"
