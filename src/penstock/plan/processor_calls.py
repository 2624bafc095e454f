"""A user's processor that calls functions outside of its task: what it is given, and its nodes in a topology.

The processor is its own inbox; below the source of answers is the node that passes them on to the processor. All of
them share a store, and so a sub-topology.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.plan.dead_letters import returning_records_error
from penstock.plan.internal_topics import ANSWERS_SUFFIX
from penstock.plan.names import INBOX_SUFFIX, check_name
from penstock.plan.nodes import ProcessorCalling
from penstock.plan.subtopology import answers_source
from penstock.processor.api import ProcessorSupplier, SimpleSupplier
from penstock.processor.call_answers import StreamCallAnswers
from penstock.processor.called_functions import ArgumentSerde
from penstock.processor.calling_processor import AnswerOfCall, CallingSupplier
from penstock.serdes import Serde

if TYPE_CHECKING:
    from penstock.plan.topology import Topology


class ProcessorCalls(ABC):
    """How the functions of a processor are called outside of its task; Calls implements it."""

    @abstractmethod
    def of_processor(
        self,
        operator: str,
        processors: ProcessorSupplier,
        functions: Sequence[Callable[..., Any]],
        key_serde: Serde | None,
    ) -> ProcessorCalling:
        """Return the calls of a processor's node.

        Args:
            operator: the name of the node.
            processors: makes its processors.
            functions: the functions that the processors may call.
            key_serde: of the records; None for the default of the configuration.

        Raises:
            TypeError: the functions are missing or wrong, or do not fit, or the processors do not receive answers.
            TopologyError: the name of the store would be illegal.
        """


def processor_calls(
    operator: str,
    processors: ProcessorSupplier,
    calls: object,
    functions: Sequence[Callable[..., Any]],
    key_serde: Serde | None,
) -> ProcessorCalling | None:
    """Return the calls of a processor's node, None without calls.

    calls: as the user gave them. Other arguments and errors as in `ProcessorCalls.of_processor`; also raises TypeError
    for functions without calls.
    """
    if calls is None:
        if functions:
            raise TypeError(f"{operator} has call_functions, but no calls: add calls=Calls(...).")
        return None
    if not isinstance(calls, ProcessorCalls):
        raise no_calls_error(operator, calls)
    return calls.of_processor(operator, processors, functions, key_serde)


def no_calls_error(of: str, given: object) -> TypeError:
    """Return the error of an object in place of Calls, for an operator or a function."""
    return TypeError(f"Expected Calls as calls of {of}, got {given!r}: write Calls(capacity=100), for example.")


def add_calling_processor(
    topology: Topology, name: str, supplier: ProcessorSupplier, parents: Sequence[str], calling: ProcessorCalling
) -> None:
    """Add the nodes of a processor that calls functions, with its store, answers topic and dead letters.

    Args:
        topology: the topology.
        name: of the processor.
        supplier: makes the user's processors.
        parents: the names of its parents.
        calling: its calls.

    Raises:
        TopologyError: a name is taken or illegal, or a parent is unknown or a sink.
    """
    spec, answers, receiver = calling.spec, check_name(name + ANSWERS_SUFFIX), check_name(name + INBOX_SUFFIX)
    topology.add_task_source(answers_source(answers, spec))
    make = partial(StreamCallAnswers, spec, AnswerOfCall, answers)
    topology.add_processor(receiver, SimpleSupplier(make, (calling.store,)), answers)
    topology.add_processor(name, CallingSupplier(supplier, spec, calling.functions, calling.store), *parents, receiver)
    topology.add_dead_letters(receiver, calling.dead_letters, spec.key_serde, ArgumentSerde(calling.functions))


def check_dead_letters_do_not_return(topology: Topology, name: str, parents: Sequence[str], topic: str | None) -> None:
    """Raise TopologyError if a source above `parents` reads the topic of dead letters of the processor `name`."""
    if topic is not None and (source := topology.source_above(parents, topic)) is not None:
        writes = f"then= of the Calls of {name} writes the records that fail"
        raise returning_records_error(writes, topic, source, "fail")
