"""The SparkSession of a query: by default a local one that Penstock creates, otherwise the user's.

The settings of the query go into a separate session on the same SparkContext, so a user's session keeps its settings.
Spark's log of a JVM that Penstock starts goes to a file next to the state, and errors reach the program as Python
exceptions. A program started with `spark-submit` gets the session that its command line describes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.sql import SparkSession

import penstock
import penstock_broker
from penstock.background import in_background
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, ProcessorStateError, StreamsError
from penstock.extras import load
from penstock.host.spark.protocol.failures import readable
from penstock.host.spark.versions import FEATURES
from penstock.host.supervision.cores import cores
from penstock.private_files import open_private, private_directory, temporary_directory

_log = logging.getLogger(__name__)

MINIMUM_JAVA = 17
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set in a program that spark-submit has started: its JVM already runs

_CONNECT_RETRIES = 14
_CONNECT_BACKOFF_MS = 5_000
"""These repeat a call to a server of Spark Connect for 55 to 60 s. If the server accepts the connection and is silent
then, gRPC waits 20 s more, once."""

STOP_SECONDS = 20.0
"""How long to wait for a query that is being stopped."""

QUERY_SETTINGS: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    # Otherwise Hadoop's local file system forks a process for each rename.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{FEATURES.checkpoint_package}.FileSystemBasedCheckpointFileManager"
    ),
    # The JVM computes nothing, so generated code costs more to compile than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.streaming.stopTimeout": f"{STOP_SECONDS * 1000:.0f}",
}
"""Settings of the query, in any session."""

_SESSION_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
    "spark.locality.wait": "0",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.shuffle.compress": "false",
}

_LOCAL_SETTINGS: Mapping[str, str] = {
    # the machine may have no host name or no network
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # On a cluster, executors get Penstock with their first task, after their daemon has started.
    "spark.python.daemon.module": "penstock.host.spark.worker.daemon",
}
"""Settings for a Spark that runs entirely on this machine."""

# The JVM only plans and passes on blocks of bytes. Compiling less and collecting garbage with one thread leaves the
# cores to the workers and halves the JVM's share of the CPU.
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_MOST_SOCKET_DIRECTORY = 60
"""Longest path (bytes) of a directory for Spark's sockets: the path of a socket has at most 103 bytes."""

_LAUNCH_SECONDS = 30
"""How long to wait for a starting JVM that is no longer needed, to kill it."""

_WHICH_PYTHON = (
    "import sys, penstock.host.spark.protocol.application_description; print('%d.%d' % sys.version_info[:2])"
)

_SELECTABLE = 1024
"""Number of file descriptors that select() accepts: FD_SETSIZE of the C library."""

_PARTS_OF_A_HOME = ("bin", "conf", "jars", "sbin")
"""The directories that Spark needs in its home, except `python`, which Python finds itself."""

_LOG_SETTINGS = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
"""


def is_connect(session: object) -> bool:
    """Return whether `session` is one of Spark Connect. Its class needs more packages than a classic one."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def remote_of(config: StreamsConfig) -> str | None:
    """Return the address of the Spark Connect server that the program names, None without one."""
    master: str | None = config["penstock.spark.master"]
    if master is None:
        return os.environ.get("SPARK_REMOTE")
    return master if master.startswith("sc://") else None


def make_connect_session(config: StreamsConfig, remote: str) -> SparkSession:
    """Return a new session at the server `remote`; `spark.` keys of the configuration are its settings.

    Without such keys, the server is not called yet.

    Raises:
        StreamsError: the server does not answer within a minute or so, or a package is missing.
    """
    settings: dict[str, Any] = {key: str(value) for key, value in config.given().items() if key.startswith("spark.")}
    builder = SparkSession.builder.remote(remote)
    made: SparkSession | None = None
    try:
        made = builder.getOrCreate()
        if settings:
            with answering_soon(made):
                builder.config(map=settings).getOrCreate()  # changes the same session
        return made
    except PySparkException as error:
        if made is not None:  # otherwise getOrCreate returns it to the next start, whatever its address
            stop_session(made)
        raise StreamsError(
            f"{config.required('application.id')} cannot open a session of Spark Connect at {remote}: "
            f"{readable(str(error))}. Start the server or correct its address, or install the packages that the "
            "message names."
        ) from error


def stop_session(made: SparkSession) -> None:
    """Stop a session. A server of Spark Connect that does not answer is asked only once to release it."""
    if is_connect(made):
        made.client.set_retry_policies([])
    made.stop()


def connect_retries() -> Any:
    """Return the policy by which a session of Spark Connect repeats calls that get no answer.

    It ends after about a minute: long enough for a server that is still starting, while one that never answers does not
    hold up the start and the end of an application. Spark's own policy ends after more than ten minutes.
    """
    retries = load("pyspark.sql.connect.client.retries", "Spark Connect")
    return retries.DefaultPolicy(max_retries=_CONNECT_RETRIES, max_backoff=_CONNECT_BACKOFF_MS)


@contextmanager
def answering_soon(remote: SparkSession) -> Iterator[None]:
    """Repeat calls of a session of Spark Connect, which may be the user's, by `connect_retries` in this block."""
    of_user = remote.client.get_retry_policies()
    remote.client.set_retry_policies([connect_retries()])
    try:
        yield
    finally:
        remote.client.set_retry_policies(of_user)


def check_python(session: SparkSession) -> None:
    """Raise ConfigError if Spark would run an unsuitable Python interpreter.

    An interpreter other than this one is unsuitable if it has another version or cannot import Penstock. That happens
    with a user's session if PYSPARK_PYTHON is not set.
    """
    chosen = str(session.sparkContext.pythonExec)
    found = shutil.which(chosen) or ""
    is_same_file = os.path.realpath(found) == os.path.realpath(sys.executable)
    # the same file outside the virtual environment is an interpreter without the packages of the environment
    if is_same_file and (os.path.dirname(found) == os.path.dirname(sys.executable) or sys.prefix == sys.base_prefix):
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        asked = subprocess.run([chosen, "-c", _WHICH_PYTHON], capture_output=True, text=True, timeout=60, check=False)
        said, problem = asked.stdout.strip(), asked.stderr.strip().rpartition("\n")[2]
    except (OSError, subprocess.SubprocessError) as error:
        said, problem = "", str(error)
    if said != version:
        why = f"it is Python {said}" if said else f"Penstock cannot be imported there ({problem})"
        raise ConfigError(
            f"Spark would run its Python processes with {chosen}, and this program runs with {sys.executable}, which "
            f"is Python {version}: {why}. Set PYSPARK_PYTHON={sys.executable} in the environment before the session is "
            "created, or pass no session, so that Penstock creates one."
        )


def is_local(master: str) -> bool:
    """Return whether all Spark processes run on this machine, started by the program.

    True for the masters local[...] and local-cluster[...].
    """
    return master.startswith("local")


def warn_of_local_checkpoint(master: str, local_path: str | None) -> None:
    """Log a warning if other machines must read a checkpoint on this machine's file system.

    Args:
        master: the master of the session.
        local_path: the directory of the checkpoint; None if it is on another file system.
    """
    if local_path is not None and not is_local(master):
        _log.warning(
            "The checkpoint %s is a directory, and the master is %s: every machine of the cluster must see it at that "
            "path. Otherwise set penstock.checkpoint.dir to a URI that all of them can read, such as hdfs:// or "
            "s3://.",
            local_path,
            master,
        )


def check_java() -> None:
    """Raise StreamsError unless JAVA_HOME or the path has Java 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    hint = f"Install Java {MINIMUM_JAVA} or newer, such as the package openjdk-17-jre-headless, or set JAVA_HOME."
    if java is None or not Path(java).exists():
        missing = f"{java} does not exist" if java else "no java is on the path"
        raise StreamsError(f"Spark needs Java {MINIMUM_JAVA} or newer, but {missing}. {hint}")
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise StreamsError(
            f"Spark needs Java {MINIMUM_JAVA} or newer, and {java} does not run: {error}. {hint}"
        ) from error
    answer = (ran.stderr + ran.stdout).strip()
    if ran.returncode != 0:
        raise StreamsError(
            f"Spark needs Java {MINIMUM_JAVA} or newer, and {java} does not run: it exits with {ran.returncode} and "
            f"says {answer!r}. {hint}"
        )
    # Match the whole line: before it, a JVM prints options from the environment.
    version = re.search(r'.*version "(?:1\.)?(\d+).*', answer)
    if version is None or int(version.group(1)) < MINIMUM_JAVA:
        raise StreamsError(
            f"Spark needs Java {MINIMUM_JAVA} or newer, and {java} is "
            f"{version.group() if version else answer or 'unknown'}. {hint}"
        )


def make_session(config: StreamsConfig, directory: Path) -> SparkSession:
    """Return a new session for the application.

    It is local unless `penstock.spark.master` or spark-submit sets another master. `spark.` keys of the configuration
    are settings of the session.

    Args:
        config: of the application.
        directory: where to write the log of the JVM (`spark.log`).
    """
    own = {key: str(value) for key, value in config.given().items() if key.startswith("spark.")}
    chosen: str | None = config["penstock.spark.master"]
    if _SUBMITTED in os.environ:
        return _built({**({} if chosen is None else {"spark.master": chosen}), **own})
    private_directory(directory)
    settings = directory / "log4j2.properties"
    level = config["penstock.spark.log.level"]
    with open_private(settings, "wb") as file:
        file.write(_LOG_SETTINGS.replace("{level}", level or "warn").encode())
    master = chosen or f"local[{cores()},4]"  # a failing task is attempted four times
    values = {
        "spark.app.name": config.required("application.id"),
        "spark.master": master,
        **_SESSION_SETTINGS,
        **({**_LOCAL_SETTINGS, **_own_sockets()} if is_local(master) else {}),
        "spark.driver.extraJavaOptions": f"{_JVM_OPTIONS} -Dlog4j2.configurationFile={settings.absolute().as_uri()}",
        **own,
    }
    with (
        _environment(master),
        _interrupts_kept(),
        _standard_error_to(directory / "spark.log" if level is None else None),
    ):
        return _built(values)


def _own_sockets() -> Mapping[str, str]:
    """Return the setting of a private directory for the sockets between workers and JVM.

    Only this user can enter the directory, so the sockets need no authentication. If the temporary directory is so deep
    that the path of a socket would be too long, return nothing: such a directory belongs to one user anyway.
    """
    directory = temporary_directory() / "sockets"
    if len(os.fsencode(directory)) > _MOST_SOCKET_DIRECTORY:
        return {}
    private_directory(private_directory(directory.parent) / directory.name)
    return {"spark.python.unix.domain.socket.dir": str(directory)}


def _built(values: Mapping[str, str]) -> SparkSession:
    if SparkContext._gateway is None:
        _launch_jvm(values)
    builder = SparkSession.builder
    for key, value in values.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _launch_jvm(values: Mapping[str, str]) -> None:
    """Start the JVM for pyspark, so that Ctrl-C cannot orphan it.

    The JVM writes its address into a directory. If pyspark is interrupted while it waits for the address, it deletes
    the directory; the JVM then fails, but does not exit. So a thread waits here, because nothing interrupts it.
    """
    conf = SparkConf()
    for key, value in values.items():
        conf.set(key, value)
    launching = in_background("penstock-jvm", lambda: launch_gateway(conf))  # type: ignore[no-untyped-call]  # pyspark gives it no types
    try:
        gateway = launching.result()
    except BaseException:
        with suppress(Exception):
            launching.result(_LAUNCH_SECONDS).proc.kill()
        raise
    SparkContext._ensure_initialized(gateway=gateway)


def open_for_calls(session: SparkSession) -> None:
    """Allow the JVM of `session` to call functions of this program, as `foreachBatch` needs. Idempotent.

    py4j waits for such calls with select(), in a thread that ends if its file descriptor is too large: py4j logs that,
    and Spark would wait for an answer forever.

    Raises:
        StreamsError: this process had too many files and connections open when py4j's server started.
    """
    gateway = session.sparkContext._gateway
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # pyspark gives it no types
    descriptor: int = gateway.get_callback_server().server_socket.fileno()
    if descriptor >= _SELECTABLE:
        raise StreamsError(
            "Spark cannot call functions of this program, which stream_from and to_spark need: py4j "
            f"accepts such calls on file descriptors up to {_SELECTABLE - 1} and got {descriptor}, "
            "because the process had that many files and connections open. Start the application "
            "before they are opened, or in its own process."
        )


def forget_lost(session: SparkSession) -> None:
    """Make the next session start a new JVM instead of the lost one of `session`.

    Otherwise pyspark would keep using the JVM that is gone.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # pyspark warns that the JVM is gone
        with suppress(ConnectionError):
            session.sparkContext.stop()
        session.sparkContext.stop()  # the remaining steps, which need no JVM
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


@contextmanager
def query_session(session: SparkSession) -> Iterator[SparkSession]:
    """Yield a session for the query, with its settings, on the SparkContext of `session`."""
    own = session.newSession()
    for key, value in QUERY_SETTINGS.items():
        own.conf.set(key, value)
    make_active(own)
    try:
        yield own
    finally:
        make_active(session)


def make_active(session: SparkSession) -> None:
    """Make `session` the active session of the thread.

    Spark looks up data sources there, not in the session of the query. Any pyspark call that sets it also runs
    something.
    """
    jvm = session._jvm
    assert jvm is not None
    jvm.SparkSession.setActiveSession(session._jsparkSession)


@contextmanager
def _environment(master: str) -> Iterator[None]:
    """Set the environment so that a JVM started inside finds these packages and this interpreter.

    On a cluster, the interpreter is PYSPARK_PYTHON of the environment, if set. SPARK_REMOTE is not set inside: with it,
    Spark starts no JVM with a master.
    """
    packages = {str(Path(str(package.__file__)).parents[1]): None for package in (penstock, penstock_broker)}
    path = os.environ.get("PYTHONPATH", "")
    python = sys.executable if is_local(master) else os.environ.get("PYSPARK_PYTHON", sys.executable)
    wanted = {
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(part for part in (path, *packages) if part),
    }
    if is_local(master):
        wanted["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")  # also the address of Spark's web UI
        if "SPARK_HOME" not in os.environ:
            wanted |= _home_without_zip()
    before = {name: os.environ.get(name) for name in (*wanted, "SPARK_REMOTE")}
    os.environ.update(wanted)
    os.environ.pop("SPARK_REMOTE", None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _home_without_zip() -> Mapping[str, str]:
    """Return SPARK_HOME: a directory of links to the installed pyspark, without its pyspark.zip.

    Return nothing if the directory cannot be created, or if the pyspark package does not include Spark.

    Spark puts that archive first on the path of each Python process that it starts, and Python compiles modules from an
    archive again each time: about half a second of CPU per process, and a query starts six.
    """
    installed = Path(pyspark.__file__).parent
    if not (installed / "jars").is_dir():
        return {}
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = cache / "penstock" / f"spark-{hashlib.sha256(str(installed).encode()).hexdigest()[:16]}"
        private_directory(home)  # because code is loaded from it
        for name in _PARTS_OF_A_HOME:
            if (installed / name).exists():
                with suppress(FileExistsError):
                    (home / name).symlink_to(installed / name)
    except (OSError, RuntimeError, ProcessorStateError) as error:  # RuntimeError: the user may have no home directory
        _log.debug("Spark's workers start more slowly, because Penstock cannot create a Spark home for them: %s", error)
        return {}
    return {"SPARK_HOME": str(home)}


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Keep the program's own handler of Ctrl-C.

    A new SparkContext replaces it with a handler that cancels all jobs, but an application closes after its running
    epoch.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _standard_error_to(log: Path | None) -> Iterator[None]:
    """Redirect the standard error of a process started inside to `log`, unless it is None."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    own = os.dup(2)
    try:
        with open_private(log, "ab") as target:
            os.dup2(target.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
