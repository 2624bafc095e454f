"""A real Apache Kafka on the loopback address, for tests and benchmarks.

Here live RealKafka, a cluster of one or three brokers in KRaft mode, and `require_kafka`, which skips a test where no
Kafka can be had. The jars come from Maven once and stay in the user's cache directory.

Rules: data lives in a temporary directory and goes with the cluster. Each broker hangs on a pipe to the process that
started it, so none is left behind when that one is killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, PartitionMetadata

from tests.support.ports import free_ports

KAFKA_VERSION: Final = os.environ.get("PENSTOCK_KAFKA_VERSION") or "4.4.0"
"""The version of Apache Kafka that is run."""

SHORT_LIVED: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that tests start: less is compiled for what soon ends."""
LONG_LIVED: Final = ("-Xmx1g",)
"""Options of a JVM whose speed counts."""

START_TIMEOUT_SECONDS: Final = 180.0
"""How long a cluster may take to start."""

_MIN_JAVA: Final = 17
_DOWNLOAD_TIMEOUT_SECONDS: Final = 900
_POM: Final = Path(__file__).with_name("kafka-pom.xml")

# Ends the command with the signal that is read, and with SIGKILL when standard input is closed, as it is when the
# process at its other end dies.
_GUARD: Final = '"$@" </dev/null & child=$!; read -r signal; kill -"${signal:-KILL}" "$child"; wait'


class KafkaUnavailableError(Exception):
    """Kafka cannot be had on this machine, or did not start; the message says why."""


def cache_root() -> Path:
    """Return where tests keep what they download."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def cache_directory() -> Path:
    """Return where Kafka's jars are kept."""
    return cache_root() / f"kafka-{KAFKA_VERSION}"


def kafka_class_path() -> str:
    """Return Java's class path of Kafka, its tools and Kafka Streams; downloads the jars the first time (125 MB).

    Raises:
        KafkaUnavailableError: there is no Java 17, or no Maven where the jars must be downloaded.
    """
    _check_java()
    directory = cache_directory()
    libraries = directory / "libs"
    directory.mkdir(parents=True, exist_ok=True)
    # Several test processes may come here at the same time; one of them downloads.
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not libraries.exists():
            _download(directory, libraries)
    return f"{libraries}/*"


def _check_java() -> None:
    try:
        said = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise KafkaUnavailableError(
            f"Java {_MIN_JAVA} or newer is needed, and `java -version` fails: {error}"
        ) from error
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < _MIN_JAVA:
        raise KafkaUnavailableError(f"Java {_MIN_JAVA} or newer is needed; found: {said.splitlines()[0]}")


def _download(directory: Path, libraries: Path) -> None:
    if shutil.which("mvn") is None:
        raise KafkaUnavailableError(f"Maven (mvn) is needed to download Kafka {KAFKA_VERSION} into {libraries}")
    with tempfile.TemporaryDirectory(dir=directory) as partial:
        target = Path(partial) / "libs"
        command = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={target}", f"-Dkafka.version={KAFKA_VERSION}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise KafkaUnavailableError(
                f"Maven took longer than {_DOWNLOAD_TIMEOUT_SECONDS} s for Kafka's jars"
            ) from error
        if done.returncode != 0:
            raise KafkaUnavailableError(f"Maven could not download Kafka {KAFKA_VERSION}: {done.stdout[-500:].strip()}")
        target.rename(libraries)


def kafka_is_at_hand() -> bool:
    """Return whether a real Kafka can be started, or must be (PENSTOCK_REQUIRE_KAFKA=1)."""
    try:
        kafka_class_path()
    except KafkaUnavailableError:
        return os.environ.get("PENSTOCK_REQUIRE_KAFKA") == "1"
    return True


def require_kafka() -> None:
    """Skip the calling test, with the reason, where no real Kafka can be had.

    With PENSTOCK_REQUIRE_KAFKA=1 in the environment it fails instead, so that a machine which must have Kafka cannot
    pass by skipping.
    """
    try:
        kafka_class_path()
    except KafkaUnavailableError as error:
        if os.environ.get("PENSTOCK_REQUIRE_KAFKA") == "1":
            pytest.fail(f"PENSTOCK_REQUIRE_KAFKA=1, but there is no Kafka: {error}")
        pytest.skip(f"no real Kafka: {error}")


class RealKafka:
    """A Kafka cluster of this process; a context manager that ends it.

    Args:
        brokers: how many, 1 or 3; all are controllers too.
        java_options: options of the JVM of each.
        settings: more lines for the brokers' properties.
        listeners: more listeners of a cluster of one broker, by name, and the security protocol of each.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        java_options: Sequence[str] = SHORT_LIVED,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
    ) -> None:
        self._java_options = java_options
        self._settings = settings or {}
        self._listeners = listeners or {}
        self._listener_ports: dict[str, int] = {}
        self._numbers = range(1, brokers + 1)
        self._class_path = ""
        self._directory = Path()
        self._ports: dict[int, int] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._resources = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for `bootstrap.servers`."""
        return ",".join(f"127.0.0.1:{self._ports[number]}" for number in self._numbers)

    @property
    def pid(self) -> int:
        """The process of the first broker's JVM, or one from which it descends."""
        return self._processes[self._numbers[0]].pid

    def address(self, listener: str) -> str:
        """Return the address of one of the further listeners."""
        return f"127.0.0.1:{self._listener_ports[listener]}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Format and start all brokers, and wait until they serve.

        Raises:
            KafkaUnavailableError: Kafka cannot be had, or a broker ended or did not serve in START_TIMEOUT_SECONDS.
        """
        self._class_path = kafka_class_path()
        try:
            self._directory = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="kafka-")))
            self._write_properties()
            self._format()
            for number in self._numbers:
                self._run(number)
            self._wait_until_ready(len(self._numbers))
        except BaseException:
            self.close()
            raise

    def _write_properties(self) -> None:
        count = len(self._numbers)
        ports = free_ports(2 * count + len(self._listeners))
        self._ports = dict(zip(self._numbers, ports[:count], strict=True))
        controllers = dict(zip(self._numbers, ports[count : 2 * count], strict=True))
        self._listener_ports = dict(zip(self._listeners, ports[2 * count :], strict=True))
        further = "".join(f",{name}://{self.address(name)}" for name in self._listeners)
        protocols = "".join(f",{name}:{protocol}" for name, protocol in self._listeners.items())
        voters = ",".join(f"{number}@127.0.0.1:{controllers[number]}" for number in self._numbers)
        min_in_sync = "2" if count > 1 else "1"
        for number in self._numbers:
            listener = f"PLAINTEXT://127.0.0.1:{self._ports[number]}{further}"
            properties = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "listeners": f"{listener},CONTROLLER://127.0.0.1:{controllers[number]}",
                "advertised.listeners": listener,
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT{protocols}",
                "log.dirs": str(self.data(number)),
                "offsets.topic.replication.factor": str(count),
                "offsets.topic.num.partitions": "4",
                "transaction.state.log.num.partitions": "4",
                "transaction.state.log.replication.factor": str(count),
                "transaction.state.log.min.isr": min_in_sync,
                "share.coordinator.state.topic.replication.factor": str(count),
                "share.coordinator.state.topic.min.isr": min_in_sync,
                "default.replication.factor": str(count),
                "min.insync.replicas": min_in_sync,
                "group.initial.rebalance.delay.ms": "0",
                # Tests write records with times long ago. A week's retention deletes them 30 s after the broker's
                # start, and then every five minutes: a test that runs just then would miss records. Exported topics of
                # state have the retention that their stores need.
                "log.retention.ms": "-1",
                "log.initial.task.delay.ms": "86400000",
                "log.retention.check.interval.ms": "86400000",
                **self._settings,
            }
            text = "".join(f"{name}={value}\n" for name, value in properties.items())
            self._properties(number).write_text(text)

    def _properties(self, number: int) -> Path:
        return self._directory / f"broker-{number}.properties"

    def _log(self, number: int) -> Path:
        return self._directory / f"broker-{number}.log"

    def _format(self) -> None:
        tool = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", self._class_path, "kafka.tools.StorageTool"]
        cluster_id = "penstock-tests-real-kk"  # 22 characters of base64: any id of 16 bytes will do
        running = [
            subprocess.Popen(
                [*tool, "format", "-t", cluster_id, "-c", str(self._properties(number))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for number in self._numbers
        ]
        said = [process.communicate(timeout=START_TIMEOUT_SECONDS)[0] for process in running]
        for process, text in zip(running, said, strict=True):
            if process.returncode != 0:
                raise KafkaUnavailableError(f"Kafka cannot format its storage: {text.decode(errors='replace')[-500:]}")

    def _run(self, number: int) -> None:
        java = ["java", *self._java_options, "-cp", self._class_path, "kafka.Kafka"]
        with self._log(number).open("ab") as log:
            self._processes[number] = subprocess.Popen(
                ["sh", "-c", _GUARD, "guard", *java, str(self._properties(number))],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_until_ready(self, brokers: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        found = 0
        while found < brokers:
            if time.monotonic() > deadline:
                logs = "\n".join(self._log(number).read_text(errors="replace")[-2000:] for number in self._numbers)
                raise KafkaUnavailableError(
                    f"{found} of {brokers} Kafka brokers serve after {START_TIMEOUT_SECONDS:.0f} s\n{logs}"
                )
            try:
                found = len(admin.list_topics(timeout=2).brokers)
            except KafkaException:
                found = 0

    def data(self, number: int) -> Path:
        """Return the directory with the logs of a broker.

        Args:
            number: which, from 1.
        """
        return self._directory / f"data-{number}"

    def kill(self, number: int) -> None:
        """End a broker with SIGKILL.

        Args:
            number: which, from 1.
        """
        process = self._processes.pop(number)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def stop(self, number: int) -> None:
        """End a broker in an orderly way, as for a restart: others lead its partitions before it goes.

        Args:
            number: which, from 1.
        """
        process = self._processes[number]
        process.communicate(b"TERM\n", timeout=START_TIMEOUT_SECONDS)
        del self._processes[number]

    def resume(self, number: int) -> None:
        """Start a stopped or killed broker again on its data, and wait until it serves.

        Args:
            number: which, from 1.
        """
        self._run(number)
        self._wait_until_ready(len(self._processes))

    def stopped(self) -> list[int]:
        """Return the numbers of the brokers that do not run."""
        return [number for number in self._numbers if number not in self._processes]

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the number of the broker that leads a partition, -1 if none does."""
        return int(self._partitions(topic)[topic, partition].leader)

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """Return the numbers of the brokers whose replicas of a partition are in sync."""
        return set(self._partitions(topic)[topic, partition].isrs)

    def all_in_sync(self) -> bool:
        """Return whether all replicas of all topics are in sync."""
        return all(len(each.isrs) == len(each.replicas) for each in self._partitions().values())

    def _partitions(self, topic: str | None = None) -> dict[tuple[str, int], PartitionMetadata]:
        """Return what the brokers know of the partitions of a topic, or of all."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        found = admin.list_topics(topic, timeout=START_TIMEOUT_SECONDS).topics
        return {(name, number): each for name, one in found.items() for number, each in one.partitions.items()}

    def close(self) -> None:
        """End all brokers and remove their data."""
        for number in tuple(self._processes):
            self.kill(number)
        self._resources.close()
