"""Lowering of operators whose functions are called outside of their tasks.

An operator becomes an inbox below its parents, a source of answers, and the operator below that source. Inbox and
operator share a store, and so a sub-topology. The nodes of a user's processor are in `plan/processor_calls`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.plan import nodes as n
from penstock.plan.internal_topics import ANSWERS_SUFFIX
from penstock.plan.lower.lowering import Lowering
from penstock.plan.names import INBOX_SUFFIX, check_name
from penstock.plan.subtopology import answers_source
from penstock.processor.api import Processor
from penstock.processor.call_answers import StreamCallAnswers
from penstock.processor.call_inbox import StreamCallInbox


class _Operator:
    """Makes an operator with the function that returns its answer.

    Args:
        operator: makes the operator with a function and the options.
        options: the further arguments of the operator.
    """

    def __init__(self, operator: Callable[..., Processor], options: tuple[Any, ...]) -> None:
        self._operator = operator
        self._options = options

    def __call__(self, function: Callable[..., Any]) -> Processor:
        return self._operator(function, *self._options)


def add_calls(
    lowering: Lowering, node: n.FunctionNode, calling: n.Calling, operator: Callable[..., Processor], *options: Any
) -> None:
    """Add the nodes of `node` with its store, its answers topic and its sink of dead letters.

    Args:
        lowering: the topology under construction.
        node: the node.
        calling: its calls.
        operator: makes the operator with a function and the options.
        options: the further arguments of the operator.
    """
    spec, answers = calling.spec, check_name(node.name + ANSWERS_SUFFIX)
    inbox = check_name(node.name + INBOX_SUFFIX)
    lowering.add_processor_below(inbox, lowering.parents(node), partial(StreamCallInbox, spec), calling.store)
    lowering.topology.add_task_source(answers_source(answers, spec))
    make = partial(StreamCallAnswers, spec, _Operator(operator, options), answers)
    lowering.add_processor_below(node.name, [answers], make, calling.store)
    lowering.topology.add_dead_letters(node.name, calling.dead_letters, spec.key_serde, spec.value_serde)
