"""Serialization of a program for other processes: as bytes, with the path to its modules.

Functions of the main module are pickled by value, those of importable modules by name (see `pickling`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import cloudpickle

from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.packing.pickling import can_go, dump, what_cannot_go
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.user_lines import made_at


def parts_of(topology: BuiltTopology, config: StreamsConfig) -> Iterator[tuple[str, Any]]:
    """Yield the user's objects in a topology and its configuration.

    Each comes with its name and the line of the program that created it.
    """
    subtopologies = topology.subtopologies
    if topology.global_topology is not None:
        subtopologies = (*subtopologies, topology.global_topology)
    for subtopology in subtopologies:
        for name, store in subtopology.stores.items():  # before the nodes: those that own a store contain it too
            yield f"Store {name}{made_at(topology.store_lines.get(name))}", store
        for node in subtopology.nodes:
            yield f"Node {node.name}{made_at(topology.node_lines.get(node.name))}", node
    for key, value in config.given().items():
        yield f"The value of {key} in the configuration", value


def dump_program(value: Any, parts: Iterable[tuple[str, Any]], receivers: str) -> bytes:
    """Return `value` as bytes for `load_program`; raises StreamsError if a user's object cannot be pickled.

    Args:
        value: the object to send.
        parts: the parts of `value` with their names, for the error.
        receivers: the receiving processes, for the error.
    """
    try:
        return dump((module_path(), dump(value)))
    except Exception as error:  # any error from an object's own pickling
        name, part = next(((name, part) for name, part in parts if not can_go(part)), ("The topology", value))
        raise StreamsError(
            f"{name} cannot be sent to {receivers}: {what_cannot_go(part)} ({error}). Create objects that belong "
            "to this process, such as a connection, a lock or a file, in `init` of a processor or at their first use."
        ) from error


def load_program(data: bytes) -> Any:
    """Return the object from `dump_program`, after adding the path to its modules in this process."""
    loaded: tuple[list[str], bytes] = cloudpickle.loads(data)
    path, inner = loaded
    extend_module_path(path)
    return cloudpickle.loads(inner)


def module_path() -> list[str]:
    """Return the module search path of this process."""
    return [os.path.abspath(path) for path in sys.path]  # an empty path is the working directory


def extend_module_path(path: Sequence[str]) -> None:
    """Add directories to the module search path."""
    sys.path.extend(each for each in path if each not in sys.path)
