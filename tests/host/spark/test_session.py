"""What is checked before a JVM starts, and how a session is made."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.config import StreamsConfig
from penstock.errors import ConfigError, StreamsError
from penstock.host.spark import session
from penstock.host.spark.driver.session_use import SessionUse
from tests.host.spark.support import SparkRunner


def java_that_says(directory: Path, text: str, code: int = 0) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return directory


@pytest.mark.parametrize(
    "answer", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023', 'x version "25-ea"']
)
def test_a_java_that_is_new_enough_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path, answer)))
    session.check_java()


@pytest.mark.parametrize("answer", ['openjdk version "11.0.2" 2019', 'java version "1.8.0_312"', "what?"])
def test_a_java_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path, answer)))
    with pytest.raises(StreamsError, match="Spark needs Java 17 or newer") as caught:
        session.check_java()
    assert answer in str(caught.value)
    assert "JAVA_HOME" in str(caught.value)


def test_a_java_with_options_from_the_environment_is_named_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2" 2019\nOpenJDK Runtime Environment'
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path, answer)))
    with pytest.raises(StreamsError, match=r'is openjdk version "11\.0\.2" 2019\. Install'):
        session.check_java()


def test_no_java_at_all_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StreamsError, match="but no java is on the path"):
        session.check_java()


def test_a_java_home_without_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StreamsError, match=f"but {tmp_path}.* does not exist"):
        session.check_java()


def test_a_java_that_does_not_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path, "broken", code=1)))
    with pytest.raises(StreamsError, match="does not run: it exits with 1 and says 'broken'"):
        session.check_java()


def session_with(python: object) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=str(python)))


def python_that(directory: Path, does: str) -> Path:
    path = directory / "python3"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return path


def test_this_python_or_another_of_its_version_with_penstock_will_do(tmp_path: Path) -> None:
    session.check_python(session_with(sys.executable))
    session.check_python(session_with(python_that(tmp_path, f'exec {sys.executable} "$@"')))


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("echo \"ModuleNotFoundError: No module named 'penstock'\" >&2; exit 1", "No module named 'penstock'"),
        ("echo 3.9", "it is Python 3.9"),
    ],
)
def test_a_python_that_cannot_run_workers_is_named_before_a_query_starts(tmp_path: Path, does: str, told: str) -> None:
    python = python_that(tmp_path, does)
    with pytest.raises(ConfigError, match=f"with {python}, and this program runs with .*PYSPARK_PYTHON=") as refused:
        session.check_python(session_with(python))
    assert told in str(refused.value)


def test_the_environment_is_as_before_when_the_jvm_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    before = dict(os.environ)
    with session._environment("local[2]"):
        assert os.environ["PYSPARK_PYTHON"]
        assert str(Path(session.__file__).parents[3]) in os.environ["PYTHONPATH"].split(os.pathsep)
    assert dict(os.environ) == before


def test_a_jvm_with_a_master_does_not_see_the_address_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    with session._environment("local[2]"):
        assert "SPARK_REMOTE" not in os.environ, "spark-submit refuses both"
    assert os.environ["SPARK_REMOTE"] == "sc://elsewhere"


class RemoteSession:
    """Replaces the class of Spark Connect, which needs additional packages."""

    def __init__(self) -> None:
        self.stopped = 0
        self.client = SimpleNamespace(set_retry_policies=lambda policies: None)

    def stop(self) -> None:
        self.stopped += 1


RemoteSession.__module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(
    ("master", "environment", "found"),
    [
        (None, {}, None),
        ("local[2]", {"SPARK_REMOTE": "sc://elsewhere"}, None),
        ("sc://somewhere:15002", {"SPARK_REMOTE": "sc://elsewhere"}, "sc://somewhere:15002"),
        (None, {"SPARK_REMOTE": "sc://elsewhere"}, "sc://elsewhere"),
    ],
)
def test_a_server_of_spark_connect_is_named_by_the_program_or_its_environment(
    monkeypatch: pytest.MonkeyPatch, master: str | None, environment: dict[str, str], found: str | None
) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    config = StreamsConfig({"application.id": "app", "penstock.spark.master": master})
    assert session.remote_of(config) == found


def test_a_session_of_spark_connect_is_known_without_its_packages() -> None:
    assert session.is_connect(RemoteSession())
    assert not session.is_connect(session_with(sys.executable))


def test_a_call_to_spark_connect_is_repeated_for_a_minute() -> None:
    pytest.importorskip("pyspark.sql.connect.client.retries", exc_type=ImportError)
    calls = session.connect_retries().to_state()
    waits = [*iter(calls.next_attempt, None)]
    assert 45_000 < sum(waits) < 65_000
    assert max(waits) < 6_000, "a server that has started meanwhile is found soon"


@pytest.mark.filterwarnings("ignore:.RETRIES_EXCEEDED.:UserWarning")
def test_a_session_whose_settings_reach_no_server_is_refused_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    remote_sessions = pytest.importorskip("pyspark.sql.connect.session", exc_type=ImportError).SparkSession
    for name in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"):
        monkeypatch.setenv(name, "")  # pyspark sets them for the whole process
    monkeypatch.setattr(session, "_CONNECT_RETRIES", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"sc://127.0.0.1:{server.getsockname()[1]}"
    config = StreamsConfig({"application.id": "app", "spark.sql.shuffle.partitions": "3"})
    with pytest.raises(StreamsError, match=f"(?s)app cannot open a session of Spark Connect at {address}: .*Start the"):
        session.make_connect_session(config, address)
    assert remote_sessions.getActiveSession() is None


@pytest.mark.parametrize(
    ("master", "path", "told"),
    [
        ("spark://somewhere:7077", "/tmp/checkpoint", True),
        ("spark://somewhere:7077", None, False),
        ("local[2,4]", "/tmp/checkpoint", False),
        ("local-cluster[2,1,1024]", "/tmp/checkpoint", False),
    ],
)
def test_a_checkpoint_that_other_machines_may_not_see_is_reported(
    caplog: pytest.LogCaptureFixture, master: str, path: str | None, told: bool
) -> None:
    session.warn_of_local_checkpoint(master, path)
    assert [record.args for record in caplog.records] == ([(path, master)] if told else [])


def test_sockets_of_a_local_session_are_in_a_directory_of_its_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        directory = Path(session._own_sockets()["spark.python.unix.domain.socket.dir"])
        assert directory.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("deep" * 20)))
    assert session._own_sockets() == {}


def test_a_directory_may_be_relative(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[dict[str, str]] = []
    monkeypatch.setattr(session, "_built", made.append)
    monkeypatch.chdir(tmp_path)
    session.make_session(StreamsConfig({"application.id": "app"}), Path("state"))
    place = (tmp_path / "state" / "log4j2.properties").as_uri()
    assert made[0]["spark.driver.extraJavaOptions"].endswith(f"-Dlog4j2.configurationFile={place}")


def test_pages_of_a_local_session_are_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with session._environment("spark://somewhere:7077"):
        assert "SPARK_LOCAL_IP" not in os.environ
    with session._environment("local[2]"):
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    monkeypatch.setenv("SPARK_LOCAL_IP", "0.0.0.0")
    with session._environment("local[2]"):
        assert os.environ["SPARK_LOCAL_IP"] == "0.0.0.0"


def test_a_cluster_keeps_the_python_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/somewhere/else/python")
    with session._environment("spark://somewhere:7077"):
        assert os.environ["PYSPARK_PYTHON"] == "/somewhere/else/python"
    with session._environment("local[2]"):
        assert os.environ["PYSPARK_PYTHON"] == sys.executable


class FakeSession:
    """Replaces a session on another JVM."""

    def __init__(self) -> None:
        self.sparkContext = object()
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeSession]:
    """Sessions that are made, in order; nothing starts a JVM."""
    made: list[FakeSession] = []

    def make(*_: object) -> FakeSession:
        made.append(FakeSession())
        return made[-1]

    monkeypatch.setattr(session, "check_java", lambda: None)
    monkeypatch.setattr(session, "make_session", make)
    monkeypatch.setattr(session, "forget_lost", lambda lost: None)
    return made


def test_hosts_without_a_session_share_one_and_the_last_ends_it(made: list[FakeSession], tmp_path: Path) -> None:
    config = StreamsConfig({"application.id": "app"})
    first, second = SessionUse(config, tmp_path), SessionUse(config, tmp_path)
    assert first.existing is None
    assert first.open() is first.open() is second.open()
    first.close()
    first.close()
    assert [each.stopped for each in made] == [0]
    second.close()
    assert [each.stopped for each in made] == [1]
    third = SessionUse(config, tmp_path)
    assert third.open() is made[1]  # type: ignore[comparison-overlap]  # a fake of it
    third.close()


@pytest.mark.usefixtures("made")
def test_a_session_at_a_server_is_shared_as_one_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []
    remote = RemoteSession()

    def make(_: StreamsConfig, address: str) -> RemoteSession:
        asked.append(address)
        return remote

    monkeypatch.setattr(session, "make_connect_session", make)
    config = StreamsConfig({"application.id": "app", "penstock.spark.master": "sc://somewhere"})
    first, second = SessionUse(config, tmp_path), SessionUse(config, tmp_path)
    assert first.open() is remote  # type: ignore[comparison-overlap]  # a fake of it
    second.take(cast(SparkSession, remote))
    second.close()
    assert remote.stopped == 0
    first.close()
    assert (asked, remote.stopped) == (["sc://somewhere"], 1)


def test_a_session_whose_jvm_is_gone_is_made_once_for_all_its_hosts(made: list[FakeSession], tmp_path: Path) -> None:
    config = StreamsConfig({"application.id": "app"})
    first, second, third = (SessionUse(config, tmp_path) for _ in range(3))
    for use in (first, second, third):
        use.open()
    first.forget_lost()
    renewed = first.open()
    second.forget_lost()
    assert second.open() is renewed
    third.close()  # it has not heard of the loss
    second.close()
    assert [each.stopped for each in made] == [0, 0]
    first.close()
    assert [each.stopped for each in made] == [0, 1]


def test_a_home_of_spark_has_all_but_the_archive_of_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = Path(session._home_without_zip()["SPARK_HOME"])
    assert session._home_without_zip() == {"SPARK_HOME": str(home)}, "a second time it is there"
    assert home.is_relative_to(tmp_path)
    for name in ("bin/spark-submit", "jars"):
        assert (home / name).exists()
    assert not (home / "python").exists()


def test_where_no_home_of_spark_can_be_made_the_installed_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert session._home_without_zip() == {}
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert session._home_without_zip() == {}


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.one_broker
def test_workers_have_the_installed_pyspark_and_not_an_archive_of_it(spark_runner: SparkRunner) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})

    row = spark_runner.session.range(1).mapInArrow(where, "file string").first()
    assert row is not None
    assert row["file"] == pyspark.__file__


@pytest.fixture
def large_descriptor() -> Iterator[socket.socket]:
    """A socket whose file descriptor is the first that select() does not take."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 1025), limits[1]))
    with socket.socket() as listening:
        duplicate = fcntl.fcntl(listening, fcntl.F_DUPFD, 1024)
    with socket.socket(fileno=duplicate) as large:
        yield large
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_calls_that_would_never_be_answered_are_refused(large_descriptor: socket.socket) -> None:
    server = SimpleNamespace(server_socket=large_descriptor)
    gateway = SimpleNamespace(_callback_server=server, get_callback_server=lambda: server)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))
    with pytest.raises(StreamsError, match=r"stream_from and to_spark need: .* on file descriptors up to 1023"):
        session.open_for_calls(spark)
