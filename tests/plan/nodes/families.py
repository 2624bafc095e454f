"""What holds for each family of nodes."""

from __future__ import annotations

import dataclasses
import inspect
from types import ModuleType
from typing import Any, get_args

from penstock.plan import nodes
from penstock.plan.nodes import BaseNode


def members(family: Any) -> set[type]:
    """Return the classes of a union, or the one class in its place."""
    return set(get_args(family)) or {family}


def check_family(module: ModuleType, *families: Any) -> None:
    """Fail unless the unions of a module have all its nodes, and these are frozen and public."""
    own = {kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__}
    nodes_of_it = {kind for kind in own if issubclass(kind, BaseNode)}
    bases = {kind for kind in nodes_of_it if any(kind in other.__bases__ for other in nodes_of_it)}
    listed = set().union(*map(members, families))
    assert listed == nodes_of_it - bases
    assert listed <= members(nodes.GraphNode)
    assert {kind.__name__ for kind in own} <= set(nodes.__all__)
    for kind in own:
        assert dataclasses.is_dataclass(kind)
        assert kind.__dataclass_params__.frozen, kind  # type: ignore[attr-defined]  # of dataclasses
