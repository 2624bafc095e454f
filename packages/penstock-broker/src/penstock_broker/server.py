"""The broker process: its lock, its listening socket, its start and its end.

Contains `run`, which the command line calls, and the startup errors. Not here: connections (connection.py).

Rules: one broker per data directory (ensured by a lock on a file in it, which the operating system releases when the
process dies). The line with the address is printed once clients can connect, not earlier.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import resource
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum
from importlib.metadata import entry_points
from itertools import chain
from typing import Final

from penstock_broker.apis import APIS
from penstock_broker.commands import Commands
from penstock_broker.common.clock import SystemClock
from penstock_broker.common.private_files import FILE_MODE, UnsafePathError, private_directory
from penstock_broker.config import BrokerConfig
from penstock_broker.connection import Connection, Connections
from penstock_broker.errors import BrokerError
from penstock_broker.faults import Faults
from penstock_broker.groups.coordinator import GroupCoordinator
from penstock_broker.groups.timers import LoopTimers
from penstock_broker.log_manager import LogManager
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.producer_ids import ProducerIds
from penstock_broker.quotas import ClientQuotas
from penstock_broker.state import BrokerState
from penstock_broker.topics import TopicRegistry
from penstock_broker.transaction_log import NO_ID, TransactionLog
from penstock_broker.transactions import TransactionCoordinator

READY_LINE: Final = "Kafka broker is ready: bootstrap.servers="
"""Prefix of the line printed when the broker is ready; its address follows."""

REGISTRY_LINE: Final = "Schema registry is ready: url="
"""Prefix of the preceding line for the schema registry, if any; its URL follows."""

REGISTRY_GROUP: Final = "penstock_broker.schema_registry"
"""Entry point group of the schema registry server, which penstock-streams provides."""

_INSTALL_REGISTRY: Final = "pip install 'penstock-streams[avro,ui]'."

Ready = Callable[[str, str | None], None]
"""Receives the broker's address (`host:port`) and the registry's URL, or None."""

_TICK_SECONDS: Final = 1.0
"""Interval (s) of the check for transaction time-outs."""

_log = logging.getLogger(__name__)


class Input(Enum):
    """Use of the broker's standard input.

    A broker of a parent process stops when the input is closed, so that it never outlives the process at the other end.
    """

    UNUSED = 0
    OF_PARENT = 1
    COMMANDS = 2
    """Parent process that sends commands (commands.py)."""


def run(
    config: BrokerConfig,
    on_ready: Ready | None = None,
    input: Input = Input.UNUSED,
    is_temporary: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        config: the broker's settings.
        on_ready: called when clients can connect; None to print the line with the address.
        input: use of the standard input.
        is_temporary: whether the data directory is removed at the end.

    Raises:
        BrokerError: it cannot start: port or directory in use, no space, damaged data.
    """
    with _data_directory(config):
        _allow_open_files()
        try:
            asyncio.run(_serve(config, on_ready or _print_ready, input))
        finally:
            if is_temporary:
                shutil.rmtree(config.data_dir, ignore_errors=True)


def _print_ready(address: str, registry_url: str | None) -> None:
    before = "" if registry_url is None else f"{REGISTRY_LINE}{registry_url}\n"
    print(f"{before}{READY_LINE}{address}", flush=True)


def _allow_open_files() -> None:
    # Every partition with writes keeps a file open, and the usual limit is 1,024.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError) as error:
        _log.warning("cannot raise the limit of open files: %s", error)


@contextmanager
def _data_directory(config: BrokerConfig) -> Iterator[None]:
    directory = config.data_dir
    try:
        private_directory(directory)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    except UnsafePathError as error:
        raise BrokerError(str(error)) from error
    except OSError as error:
        raise BrokerError(f"cannot use the data directory {directory}: {error}; choose another one") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise BrokerError(
                f"the data directory {directory} is in use by another broker (process {owner}); stop that one, or "
                "choose another directory"
            ) from error
        free = shutil.disk_usage(directory).free
        if free < config.min_free_bytes:
            raise BrokerError(
                f"{directory} has {free >> 20} MiB of free disk space; it needs {config.min_free_bytes >> 20} MiB "
                "to start; free some space, or choose another directory"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


async def _serve(config: BrokerConfig, on_ready: Ready, input: Input) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    store = MetadataStore(config.data_dir / "metadata.sqlite")
    topics = _opened_topics(config, store)
    connections = Connections(config)
    state: BrokerState | None = None
    apis = dict(APIS)
    if input != Input.UNUSED:
        commands = Commands(topics, Faults(apis)) if input == Input.COMMANDS else None
        loop.add_reader(sys.stdin.fileno(), _read_input, loop, stop, commands)

    def connect() -> Connection:
        assert state is not None
        return Connection(state, connections, apis)

    try:
        groups = GroupCoordinator(config, topics, LoopTimers(), SystemClock())
        groups.take_over(store)
        producer_ids = ProducerIds(store, lambda: _largest_producer_id(topics, transactions))
        transactions = TransactionCoordinator(
            config, TransactionLog(topics), topics, groups.offsets, producer_ids.draw, SystemClock()
        )
        quotas = ClientQuotas(config, store)
        host = "127.0.0.1" if config.host == "localhost" else config.host
        server = await _listen(loop, connect, host, config.port)
        port: int = server.sockets[0].getsockname()[1]
        cluster_id = store.cluster_id
        state = BrokerState(config, store, producer_ids, topics, groups, transactions, quotas, host, port, cluster_id)
        async with _schema_registry(config, topics, host) as registry_url:
            await server.start_serving()
            closing_idle = loop.create_task(connections.close_idle())
            ticking = loop.create_task(_tick(transactions))
            keeping_logs = loop.create_task(LogManager(config, topics, SystemClock()).run())
            on_ready(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", registry_url)
            await stop.wait()
        server.close()
        closing_idle.cancel()
        ticking.cancel()
        keeping_logs.cancel()
        connections.close()
        await server.wait_closed()
    finally:
        topics.close()
        store.close()


def _opened_topics(config: BrokerConfig, store: MetadataStore) -> TopicRegistry:
    try:
        return TopicRegistry(config, store, SystemClock())
    except OSError as error:
        raise BrokerError(
            f"cannot open {error.filename}: {error.strerror}; the files of a data directory must be this user's, and "
            "writable"
        ) from error


@asynccontextmanager
async def _schema_registry(config: BrokerConfig, topics: TopicRegistry, host: str) -> AsyncIterator[str | None]:
    """Serve the schema registry, if configured, during the block; yields its URL."""
    if config.schema_registry_port is None:
        yield None
        return
    try:
        [serving] = [found.load() for found in entry_points(group=REGISTRY_GROUP)]
    except ModuleNotFoundError as error:
        raise BrokerError(
            f"the schema registry needs the package {error.name}, which is not installed: {_INSTALL_REGISTRY}"
        ) from error
    except ValueError as error:
        raise BrokerError(f"the package of the schema registry is not installed: {_INSTALL_REGISTRY}") from error
    async with serving(topics, SystemClock(), host, config.schema_registry_port) as url:
        yield url


def _largest_producer_id(topics: TopicRegistry, transactions: TransactionCoordinator) -> int:
    of_partitions = (partition.producers.largest_id for partition in topics.partitions())
    of_transactions = (max(one.producer_id, one.next_producer_id) for one in transactions.all())
    return max(chain(of_partitions, of_transactions), default=NO_ID)


async def _tick(transactions: TransactionCoordinator) -> None:
    while True:
        await asyncio.sleep(_TICK_SECONDS)
        transactions.tick()


async def _listen(
    loop: asyncio.AbstractEventLoop, connect: Callable[[], Connection], host: str, port: int
) -> asyncio.Server:
    try:
        return await loop.create_server(connect, host, port, start_serving=False)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BrokerError(
                f"port {port} of {host} is in use by another program; stop it, choose another port, or 0 for a free one"
            ) from error
        raise BrokerError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _read_input(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, commands: Commands | None) -> None:
    data = os.read(sys.stdin.fileno(), 4096)
    if not data:
        loop.remove_reader(sys.stdin.fileno())
        stop.set()
    elif commands is not None:
        sys.stdout.buffer.write(commands.receive(data))
        sys.stdout.buffer.flush()
