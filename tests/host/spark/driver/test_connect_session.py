"""Sessions of Spark Connect: the checks before a start. `tests/host` runs applications there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import StreamsBuilder
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, StreamsError
from penstock.host.spark.driver.hosted_application import HostedApplication
from penstock.host.spark.versions import features_of
from penstock.plan.topology import Topology
from penstock_broker.common.clock import SystemClock

connect_session = pytest.importorskip(
    "penstock.host.spark.driver.connect_session",
    reason="the packages of pyspark[connect] are not installed",
    exc_type=ImportError,
)


def client_of(host: str) -> Any:
    return SimpleNamespace(host=host, get_retry_policies=list, set_retry_policies=lambda policies: None)


class Remote:
    """The part of a session of Spark Connect that is used before a query starts; `rows` are those of its workers."""

    version = "4.3.7"
    client = client_of("somewhere")

    def __init__(self, rows: int | Exception = 3) -> None:
        self.rows = rows
        self.penstock = penstock.__version__

    def range(self, end: int) -> Any:
        def collect() -> list[Any]:
            if isinstance(self.rows, Exception):
                raise self.rows
            return [SimpleNamespace(penstock=self.penstock)] * self.rows

        return SimpleNamespace(mapInArrow=lambda function, schema: SimpleNamespace(collect=collect))


def reading(*topics: str) -> Topology:
    builder = StreamsBuilder()
    for topic in topics:
        builder.stream(topic)
    return builder.build()


def opened(remote: Remote, topology: Topology, directory: Path) -> Any:
    """Return the session of an application of `topology`, whose checkpoint is a local directory."""
    config = StreamsConfig({"application.id": "app", "state.dir": str(directory)})
    application = HostedApplication(topology.build("app"), config, False, SystemClock(), False)
    return connect_session.ConnectSession(cast(SparkSession, remote), application)


@pytest.fixture(autouse=True)
def spark_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_session.pyspark, "__version__", "4.3.0")
    monkeypatch.setattr(connect_session, "FEATURES", features_of("4.3.0"))


def test_a_session_has_the_parallelism_of_its_server_which_is_asked_once(tmp_path: Path) -> None:
    remote = Remote(rows=5)
    session = opened(remote, reading("in"), tmp_path)
    session.check()
    remote.rows = 9
    assert session.parallelism() == 5


def test_a_checkpoint_that_a_server_elsewhere_may_not_see_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(Remote(), reading("in"), tmp_path).check()
    assert "the master is sc://somewhere" in caplog.text
    caplog.clear()
    monkeypatch.setattr(Remote, "client", client_of("localhost"))
    opened(Remote(), reading("in"), tmp_path).check()
    assert caplog.text == ""


def test_another_spark_than_that_of_the_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remote, "version", "4.4.0")
    with pytest.raises(ConfigError, match=r"runs Spark 4\.4\.0, and this program has pyspark 4\.3\.0.*Install"):
        opened(Remote(), reading("in"), tmp_path).check()


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(remote: Remote) -> str:
        raise connect_session.PySparkException("status = StatusCode.UNAVAILABLE")

    monkeypatch.setattr(Remote, "version", property(version))
    with pytest.raises(StreamsError, match=r"at somewhere does not answer app: .*UNAVAILABLE\. Start it"):
        opened(Remote(), reading("in"), tmp_path).check()


def test_a_client_that_cannot_open_another_session_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_session, "FEATURES", features_of("4.2.0"))
    with pytest.raises(ConfigError, match=r"app cannot run on Spark Connect with Spark .* 4\.3 or newer.*spark-submit"):
        opened(Remote(), reading("in"), tmp_path).check()


def test_functions_of_data_frames_are_refused(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to_spark(lambda frame, number: None)
    with pytest.raises(
        ConfigError, match=r"app cannot use stream_from, stream_from_history and to_spark \(topics app-.*sink\) on"
    ):
        opened(Remote(), builder.build(), tmp_path).check()


def test_workers_without_the_packages_of_penstock_are_refused(tmp_path: Path) -> None:
    failed = connect_session.PySparkException("Traceback ...\nModuleNotFoundError: No module named 'lmdb'\n at x")
    with pytest.raises(ConfigError, match=r"server at somewhere cannot run app: .*'lmdb'\. .*pip install"):
        opened(Remote(failed), reading("in"), tmp_path).check()


def test_workers_with_another_penstock_are_refused(tmp_path: Path) -> None:
    remote = Remote()
    remote.penstock = "0.1.0"
    with pytest.raises(ConfigError, match=r"cannot run app: they have version 0\.1\.0\. They need Python"):
        opened(remote, reading("in"), tmp_path).check()


def test_only_the_files_of_one_query_are_kept(tmp_path: Path) -> None:
    session = opened(Remote(), reading("in"), tmp_path)
    first = Path(session.new_location("1").removeprefix("file://"))
    first.mkdir(parents=True)
    second = Path(session.new_location("2").removeprefix("file://"))
    assert not first.exists()
    assert first.parent == second.parent
    assert first.is_relative_to(tmp_path)
    assert Path(session.mailboxes().below("1").uri).is_relative_to(tmp_path)


def test_a_classic_application_does_not_load_the_packages_of_spark_connect() -> None:
    code = "import sys, penstock.host.spark.driver.spark_host; print('grpc' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.strip() == "False"
