"""Tables that cannot be opened: errors that name the sink, the table and the remedy, without values of settings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Serdes
from penstock.config import StreamsConfig
from penstock.errors import RetriableError, StreamsError
from penstock.lake import Delta, Iceberg
from penstock.lake.tables import LakeMode, LakeSink, LakeTableError

pytest.importorskip("pyiceberg", reason="the extra lake is not installed")
pytest.importorskip("deltalake", reason="the extra lake is not installed")

from penstock.host.lake.targets import AppendTarget, UpsertTarget, of_sink, target_of
from tests.lake.formats import FORMATS

TEXT = Serdes.string()
NODE = "orders (created at shop.py:7)"
CONFIG = StreamsConfig({"application.id": "shop", "bootstrap.servers": "localhost:1"})


def sink(table: Iceberg | Delta, value_serde: Any = TEXT, mode: LakeMode = LakeMode.APPEND) -> LakeSink:
    return LakeSink(table, TEXT, value_serde, None, mode, NODE)


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize(("mode", "kind"), [(LakeMode.APPEND, AppendTarget), (LakeMode.UPSERT, UpsertTarget)])
def test_the_sink_says_how_records_become_rows(tmp_path: Path, format_name: str, mode: LakeMode, kind: type) -> None:
    table = FORMATS[format_name](tmp_path).table()
    assert type(target_of(sink(table, mode=mode), CONFIG)) is kind


def unknown_catalog(directory: Path) -> Iceberg | Delta:
    return Iceberg("shop.orders", "no-such-catalog")


def missing_database(directory: Path) -> Iceberg | Delta:
    uri = f"sqlite:///{directory}/missing/catalog.db"
    return Iceberg("shop.orders", "local", {"type": "sql", "uri": uri, "warehouse": f"file://{directory}"})


def unreachable_catalog(directory: Path) -> Iceberg | Delta:
    return Iceberg("shop.orders", "rest", {"type": "rest", "uri": "http://127.0.0.1:1"})


def unknown_type(directory: Path) -> Iceberg | Delta:
    return Iceberg("shop.orders", "local", {"uri": "ftp://secret-host/catalog"})


def unknown_scheme(directory: Path) -> Iceberg | Delta:
    return Delta("nowhere://lake/orders")


def file_in_the_way(directory: Path) -> Iceberg | Delta:
    (directory / "orders").write_text("")
    return Delta(f"{directory}/orders")


CATALOG = "Check the name of the catalog, its type, uri and credentials"
STORAGE = "Check the uri and the storage_options of Delta"


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        *((make, CATALOG) for make in (unknown_catalog, missing_database, unreachable_catalog, unknown_type)),
        *((make, STORAGE) for make in (unknown_scheme, file_in_the_way)),
    ],
)
def test_a_table_that_cannot_be_opened(tmp_path: Path, make: Callable[[Path], Iceberg | Delta], advice: str) -> None:
    table = make(tmp_path)
    with pytest.raises(LakeTableError) as raised:
        target_of(sink(table), CONFIG)
    told = str(raised.value)
    assert told.startswith(f"Sink {NODE} cannot open or write {table}: ")
    assert advice in told
    assert "secret-host" not in told
    assert raised.value.__suppress_context__  # the traceback of the library is not shown


def test_a_serde_without_columns_is_an_error_of_the_sink(tmp_path: Path) -> None:
    with pytest.raises(
        LakeTableError, match=r"Sink orders \(created at shop\.py:7\): The objects of JsonSerde have no"
    ):
        target_of(sink(Delta(f"{tmp_path}/orders"), Serdes.json()), CONFIG)


def test_the_names_of_settings_replace_their_values(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    table = Delta("s3://lake/orders", {"AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "", "AWS_ENDPOINT_URL": "a"})
    told = str(of_sink(sink(table), OSError("hunter2 is no key of a lake")))
    assert "OSError: <AWS_SECRET_ACCESS_KEY> is no key of <AWS_ENDPOINT_URL> lake. Check the uri" in told
    assert "hunter2" not in caplog.text


def test_a_secret_that_begins_with_another_setting_is_replaced_as_a_whole() -> None:
    table = Iceberg("shop.orders", "rest", {"user": "shop", "password": "shop-hunter2"})
    told = str(of_sink(sink(table), OSError("no login as shop with shop-hunter2")))
    assert "no login as <user> with <password>. Check" in told


def test_errors_of_brokers_stay_as_they_are() -> None:
    for error in (RetriableError("no leader"), LakeTableError("named before")):
        assert of_sink(sink(Delta("/lake")), error) is error
    assert type(of_sink(sink(Delta("/lake")), StreamsError("x"))) is LakeTableError
