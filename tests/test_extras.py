"""The errors if a package of an extra is missing or too old."""

import sys
from pathlib import Path

import pytest

from penstock import KafkaStreams, Topology, extras
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.host.open import check_host
from penstock.host.storage.files import Files
from penstock.serdes.columns import arrow
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.groups import patterns
from penstock_broker.server import run
from tests.test_streams import CONFIG, TestHost


def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rocksdict", raising=False)
    missing = ModuleNotFoundError("No module named 'rocksdict'", name="rocksdict")
    said = extras.what_is_missing(missing)
    assert said == "the package rocksdict, which is not installed: pip install 'penstock-streams[rocksdb]'."


def test_tables_and_files_name_the_extra_that_brings_arrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "pyarrow", raising=False)
    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(
        ConfigError, match=r"^Work on columns needs the package pyarrow, .*'penstock-streams\[arrow\]'\.$"
    ):
        arrow()
    with pytest.raises(
        ConfigError, match=r"^A directory of checkpoints, savepoints or snapshots needs .*\[arrow\]'\.$"
    ):
        Files(str(tmp_path))


def test_a_feature_names_the_extra_with_all_of_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyarrow", raising=False)
    monkeypatch.setattr(extras, "import_module", lambda module: missing("pyarrow"))
    with pytest.raises(ConfigError, match=r"^to_lake needs the package pyarrow, .*'penstock-streams\[lake\]'\.$"):
        extras.load("penstock.host.lake.writing", "to_lake", extra="lake")


def missing(module: str) -> None:
    raise ModuleNotFoundError(f"No module named {module!r}", name=module.partition(".")[0])


def test_the_broker_names_its_extra_where_patterns_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "import_module", missing)
    patterns._arrow.cache_clear()
    with pytest.raises(ApiError, match=r"pip install 'penstock-broker\[regex\]'"):
        patterns.check_pattern("a.*")


def test_a_package_that_is_too_old_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def old_pyspark(module: str) -> None:
        raise ModuleNotFoundError("No module named 'pyspark.sql.datasource'", name="pyspark.sql.datasource")

    monkeypatch.setattr(extras, "import_module", old_pyspark)
    monkeypatch.setitem(sys.modules, "pyspark", extras)
    with pytest.raises(ConfigError) as caught:
        extras.load("penstock.host.spark.driver", "penstock.host=spark")
    assert str(caught.value) == (
        "penstock.host=spark needs pyspark.sql.datasource, which the installed pyspark is too old to have: "
        "pip install --upgrade 'penstock-streams[spark]'."
    )


def test_an_application_that_is_to_show_itself_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_uvicorn(module: str) -> None:
        assert module == "penstock.tools.ui.server"
        raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")

    host = TestHost()
    monkeypatch.setattr("penstock.streams.open_host", host.open)
    monkeypatch.setattr(extras, "import_module", no_uvicorn)
    monkeypatch.delitem(sys.modules, "uvicorn", raising=False)
    streams = KafkaStreams(Topology().add_source("source", "in"), {**CONFIG, "penstock.ui.port": 0})
    with pytest.raises(ConfigError) as caught:
        streams.start()
    assert str(caught.value) == (
        "penstock.ui.port needs the package uvicorn, which is not installed: pip install 'penstock-streams[ui]'."
    )
    assert host.calls == []


def test_a_broker_with_a_schema_registry_names_its_extras(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "penstock.tools.ui.connections", raising=False)
    monkeypatch.delitem(sys.modules, "penstock.tools.registry.server", raising=False)
    with pytest.raises(BrokerError, match=r"needs the package uvicorn, .*: pip install 'penstock-streams\[avro,ui\]'"):
        run(BrokerConfig(data_dir=tmp_path, schema_registry_port=0))


def test_the_host_that_needs_no_spark_is_named_where_spark_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pyspark(module: str) -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

    monkeypatch.setattr(extras, "import_module", no_pyspark)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    with pytest.raises(ConfigError, match=r"not installed: .* Without Spark, set penstock\.host=threads"):
        check_host(StreamsConfig(environment={}))
    with pytest.raises(ConfigError) as caught:
        check_host(StreamsConfig({"penstock.host": "spark"}, environment={}))
    assert "threads" not in str(caught.value)
