"""A program on its way to other processes: as bytes, with the path on which its modules are found.

Functions of the main module go by value, those of importable modules by name (see `pickling`).
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
    """Yield what is the user's in a topology and its configuration, each with its name and the line of the program that
    made it."""
    subtopologies = topology.subtopologies
    if topology.global_topology is not None:
        subtopologies = (*subtopologies, topology.global_topology)
    for subtopology in subtopologies:
        for name, store in subtopology.stores.items():  # before the nodes: those that own a store hold it too
            yield f"Store {name}{made_at(topology.store_lines.get(name))}", store
        for node in subtopology.nodes:
            yield f"Node {node.name}{made_at(topology.node_lines.get(node.name))}", node
    for key, value in config.given().items():
        yield f"The value of {key} in the configuration", value


def dump_program(value: Any, parts: Iterable[tuple[str, Any]], receivers: str) -> bytes:
    """Return `value` as bytes for `load_program`; raises StreamsError if something of the user's cannot be pickled.

    Args:
        value: what is sent.
        parts: those of `value` with their names, one of which the error names.
        receivers: the processes that are to have it, for the error.
    """
    try:
        return dump((module_path(), dump(value)))
    except Exception as error:  # whatever an object's own pickling raises
        name, part = next(((name, part) for name, part in parts if not can_go(part)), ("The topology", value))
        raise StreamsError(
            f"{name} cannot be sent to {receivers}: {what_cannot_go(part)} ({error}). Create objects that belong "
            "to this process, such as a connection, a lock or a file, in `init` of a processor or at their first use."
        ) from error


def load_program(data: bytes) -> Any:
    """Return what `dump_program` wrote; this process finds its modules from now on."""
    loaded: tuple[list[str], bytes] = cloudpickle.loads(data)
    path, inner = loaded
    extend_module_path(path)
    return cloudpickle.loads(inner)


def module_path() -> list[str]:
    """Return where this process finds modules."""
    return [os.path.abspath(path) for path in sys.path]  # an empty one is the working directory


def extend_module_path(path: Sequence[str]) -> None:
    """Find modules there too, from now on."""
    sys.path.extend(each for each in path if each not in sys.path)
