"""Splitting a stream: `Branched`, a branch's options, and BranchedKStream, the collection of branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from penstock.dsl.functions import checked
from penstock.dsl.graph import Graph
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import K, V
from penstock.plan.nodes import BranchNode, NodeId, SplitNode

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream

T = TypeVar("T")


@dataclass(frozen=True)
class Branched:
    """The name of a branch, and its function (Kafka class: Branched).

    Args:
        name: None for the number of the branch.
        function: receives the branch; the result, unless None, replaces it in the map of branches.
        consumer: receives the branch, which is then not in the map.
    """

    name: str | None = None
    function: Callable[[KStream], KStream | None] | None = None
    consumer: Callable[[KStream], object] | None = None

    @staticmethod
    def as_(name: str) -> Branched:
        """Return options with the name of the branch."""
        return Branched(name=name)

    @staticmethod
    def with_function(function: Callable[[KStream], KStream | None], name: str | None = None) -> Branched:
        """Return options to put `function(branch)` into the map; a result of None omits the branch."""
        return Branched(name=name, function=checked(function, "function(branch)"))

    @staticmethod
    def with_consumer(consumer: Callable[[KStream], object], name: str | None = None) -> Branched:
        """Return options that pass the branch to `consumer(branch)`."""
        return Branched(name=name, consumer=checked(consumer, "consumer(branch)"))

    def with_name(self, name: str) -> Branched:
        """Return a copy with the name of the branch."""
        return replace(self, name=name)


class _Branches(dict[str, T]):
    """The branches by name; the error for an unknown name lists the existing names."""

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"There is no branch {name!r}. The branches, with the prefix of split(): {', '.join(self)}.")


class BranchedKStream(Shell, Generic[K, V]):
    """A stream that is being split (Kafka class: BranchedKStream); created by `KStream.split`.

    A record goes to the first branch with a matching predicate.

    Args:
        graph: the graph.
        id: the node of the split.
        split: that node.
        stream: creates a stream of a node's records.
    """

    _iterated = "default_branch() and no_default_branch() return the branches, a dict of streams by name."

    def __init__(self, graph: Graph, id: NodeId, split: SplitNode, stream: Callable[[NodeId], KStream[K, V]]) -> None:
        self._graph = graph
        self._id = id
        self._split = split
        self._stream = stream
        self._branches: dict[str, KStream[K, V]] = {}

    def branch(self, predicate: Callable[[K, V], bool], branched: Branched | None = None) -> BranchedKStream[K, V]:
        """Add the branch of records that match `predicate(key, value)` and no earlier predicate.

        Returns this object.
        """
        checked(predicate, "predicate(key, value)")
        self._split = replace(self._split, predicates=(*self._split.predicates, predicate))
        self._add(branched or Branched(), len(self._split.predicates))
        return self

    def default_branch(self, branched: Branched | None = None) -> dict[str, KStream[K, V]]:
        """Add the branch of all other records; returns the branches by name.

        The name is the prefix and the given name, or the number of the branch, 0 for the default.
        """
        self._add(branched or Branched(), 0)
        return _Branches(self._branches)

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Return the branches by name; all other records are dropped."""
        return _Branches(self._branches)

    def _add(self, branched: Branched, number: int) -> None:
        name = self._split.name + (str(number) if branched.name is None else branched.name)
        self._split = replace(self._split, branches=(*self._split.branches, name))
        self._graph.replace(self._id, self._split)
        self._graph.names.new_processor_name(name)  # Kafka takes a number for each branch
        stream = self._stream(self._graph.add(BranchNode(name=name, parents=(self._id,))))
        if branched.function is not None:
            result = branched.function(stream)
            if result is not None:
                self._branches[name] = result
        elif branched.consumer is not None:
            branched.consumer(stream)
        else:
            self._branches[name] = stream
