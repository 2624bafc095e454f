"""The application description as a checkpoint stores it.

A program that left an epoch half committed finishes it with its own functions, whatever has been edited since.

Functions of the main module are pickled by value. Those of the user's own modules are stored twice: by name, with
digests of the sources, and by value. While the modules are unchanged, they are loaded by name; if one was edited or
deleted, their former content is loaded. If pickle cannot store something by value (for example a lock in a module that
a function refers to), the program logs a warning when it starts; after an edit of that module, the stored description
cannot be loaded.
"""

from __future__ import annotations

import logging
import pickle
import sys
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import cloudpickle

from penstock.config import StreamsConfig
from penstock.config.keys import KEYS
from penstock.errors import StreamsError
from penstock.host.packing.pickling import ByValueError, digest_of, dump_by_value
from penstock.host.packing.sent_program import extend_module_path, module_path
from penstock.host.spark.protocol.application_description import (
    ApplicationDescription,
    dump_description,
    load_description,
)
from penstock.host.spark.protocol.placement import shape
from penstock.host.spark.protocol.user_modules import changed_modules, loaded_digests
from penstock.plan.subtopology import BuiltTopology
from penstock_broker.common.clock import SystemClock

_log = logging.getLogger(__name__)

_DIGEST_BYTES = 16

_MOST_BYTES = 64 * 1024 * 1024
"""Most bytes of a description by value: a larger one has data in its modules, which are not stored each time."""

_OF_THE_RUN = (
    "bootstrap.servers",
    "penstock.checkpoint.dir",
    "penstock.openlineage.config",
    "penstock.openlineage.enabled",
    "penstock.openlineage.interval.ms",
    "penstock.openlineage.namespace",
    "penstock.poll.ms",
    "penstock.spark.partitions",
    "state.dir",
)
"""Keys that set where and how fast an application runs, not its results."""


@dataclass(frozen=True)
class StoredDescription:
    """A description in its stored form.

    Args:
        digest: the same for equal programs, also in other processes.
        data: for `load_from_checkpoint`.
    """

    digest: str
    data: bytes


def dump_for_checkpoint(description: ApplicationDescription) -> StoredDescription:
    """Return `description` without data of one run and without clients' settings, which may be secrets.

    Raises the errors of `dump_description`.
    """
    of_any_run = _of_any_run(description)
    by_name, modules = dump_description(of_any_run), loaded_digests()
    digest = _digest(of_any_run, modules)
    by_value = _by_value(of_any_run, modules)
    return StoredDescription(digest, pickle.dumps((module_path(), by_name, modules, by_value)))


def digest_of_description(description: ApplicationDescription) -> str:
    """Return the digest of `dump_for_checkpoint`. Raises the errors of `dump_description`."""
    of_any_run = _of_any_run(description)
    dump_description(of_any_run)  # loads the modules whose sources count
    return _digest(of_any_run, loaded_digests())


def digest_of_program(topology: BuiltTopology, config: StreamsConfig) -> str:
    """Return a digest of a program alone: its topology, and the keys that its results depend on.

    Equal programs have the same one if the same command has loaded them.
    """
    of_program = replace(topology.without_lines(), copartition_groups=())
    return _digest_or_unique((_kept(config).given(), of_program))


def _kept(config: StreamsConfig) -> StreamsConfig:
    """Return `config` without keys of one run and of clients."""
    given = config.given()
    kept = {key: value for key, value in given.items() if key in KEYS and key not in _OF_THE_RUN}
    return StreamsConfig(kept, environment={})


def _of_any_run(description: ApplicationDescription) -> ApplicationDescription:
    # the inputs of the placement are not needed again, and each process pickles sets in another order
    topology = replace(description.topology, copartition_groups=())
    return replace(
        description,
        config=_kept(description.config),
        topology=topology,
        begin={},
        checkpoint="",
        checkpoint_id="",
        query_id="",
        generation=0,
        control_directory="",
        clock=SystemClock(),
        histories={},
        failure_key=b"",
    )


def _digest(description: ApplicationDescription, modules: Mapping[str, str]) -> str:
    """Return a digest of the program's effect on its input and output topics.

    Other topics may change. Without a digest, each start counts as that of another program, which finishes no epoch of
    the former one.
    """
    placement, topology = description.placement, description.topology.without_lines()
    counts = placement.partitions, placement.sink_partitions
    said = (
        description.config.given(),
        topology,
        shape(topology, placement, description.config),
        counts,
        description.transactional,
        sorted(modules.items()),
    )
    return _digest_or_unique(said)


def _digest_or_unique(said: object) -> str:
    try:
        return digest_of(said, _DIGEST_BYTES)
    except Exception as error:  # any error raised by an object's own pickling
        _log.info("The digest of the program differs between processes: %s", error)
        return uuid.uuid4().hex


def _by_value(description: ApplicationDescription, modules: Iterable[str]) -> bytes | None:
    """Return `description` with all of `modules` by value, None if impossible.

    Then a warning is logged.
    """
    try:
        data = dump_by_value(description, [sys.modules[name] for name in modules])
    except ByValueError as error:
        _warn_of_modules(
            f"Functions of {', '.join(error.modules) or 'its modules'} cannot be stored by value ({error})"
        )
        return None
    if len(data) > _MOST_BYTES:
        _warn_of_modules(f"The modules of this program have {len(data)} bytes of data, too many to store with it")
        return None
    return data


def _warn_of_modules(why: str) -> None:
    _log.warning(
        "%s. If this program is killed in the middle of an epoch, the next start needs its modules unchanged, and "
        "raises an error otherwise.",
        why,
    )


def load_from_checkpoint(data: bytes) -> ApplicationDescription:
    """Return the description that `dump_for_checkpoint` wrote; `of_run` completes it.

    Raises StreamsError if modules have changed that are not stored, and any error of the unpickling of a user's object.
    """
    path: list[str]
    modules: Mapping[str, str]
    path, by_name, modules, by_value = pickle.loads(data)
    extend_module_path(path)
    changed = changed_modules(modules)
    if not changed:
        return load_description(by_name)
    if by_value is None:
        raise StreamsError(
            f"modules have changed since, or are missing: {', '.join(changed)}; its start warned that the checkpoint "
            "cannot contain them"
        )
    description = cloudpickle.loads(by_value)
    assert isinstance(description, ApplicationDescription)
    return description


def of_run(stored: ApplicationDescription, run: ApplicationDescription) -> ApplicationDescription:
    """Return `stored` with the clients, the directories and the clock of `run`.

    `stored` was loaded from a checkpoint.
    """
    given = run.config.given()
    surroundings = {key: value for key, value in given.items() if key not in KEYS or key in _OF_THE_RUN}
    return replace(
        stored,
        config=StreamsConfig({**stored.config.given(), **surroundings}, environment={}),
        checkpoint=run.checkpoint,
        generation=run.generation,
        control_directory=run.control_directory,
        clock=run.clock,
        histories=run.histories,
        failure_key=run.failure_key,
    )
