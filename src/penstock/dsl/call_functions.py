"""The functions that a user's processor calls outside of its task, with `calls` and `call_functions` of `process`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.dsl.call_nodes import calling, checked_call, failure_of, given_parameters
from penstock.dsl.functions import name_of_function
from penstock.plan.nodes import ProcessorCalling
from penstock.plan.suppliers import check_answered, receives_failures, user_processor
from penstock.processor.api import ProcessorSupplier
from penstock.processor.called_functions import CalledFunction, CalledFunctions, FunctionCallSerde
from penstock.processor.calls import CallFailure
from penstock.processor.column_functions import has_mark
from penstock.serdes import Serde
from penstock.serdes.answers import PlainAnswerSerde, answer_serde_of, argument_serde_of

if TYPE_CHECKING:
    from penstock.dsl.calls import Calls


def processor_calling(
    operator: str,
    processors: ProcessorSupplier,
    given: Calls,
    functions: Sequence[Callable[..., Any]],
    key_serde: Serde | None,
) -> ProcessorCalling:
    """Return the calls of a processor's node.

    Args:
        operator: the name of the node.
        processors: makes its processors.
        given: the calls as the user gave them.
        functions: the functions that the processors may call.
        key_serde: of the stream.

    Raises:
        TypeError: calls or functions are missing or wrong, or the processors do not receive answers, or
            Calls says what becomes of failures that they receive.
        TopologyError: the name of the store would be illegal.
    """
    declared = _declared(operator, functions)
    if not declared:
        raise TypeError(
            f"{operator} has calls, but no call_functions: name all functions that the processor calls, as in "
            "call_functions=(function,)."
        )
    _check_single(operator, given, declared)
    called = CalledFunctions(operator, [_called(given, each) for each in declared])
    check_answered(processors)
    if has_failed := receives_failures(processors):
        _check_no_other_failure(operator, given, type(user_processor(processors)).__qualname__)
    of_calls = given.with_value_serde(None)  # which is that of the arguments
    serdes = key_serde, FunctionCallSerde(called)
    made = calling(of_calls, operator, called, serdes, PlainAnswerSerde(), with_key=False)
    return ProcessorCalling(
        store=made.store,
        spec=replace(
            made.spec,
            choose_answer_serde=called.answer_serde_of,
            on_failure=CallFailure.FORWARD if has_failed else made.spec.on_failure,
        ),
        dead_letters=made.dead_letters,
        functions=called,
    )


def _check_single(operator: str, calls: Calls, functions: Sequence[Callable[..., Any]]) -> None:
    """Raise TypeError for options and functions of operators, which a processor cannot use."""
    if calls.reconcile is not None:
        raise TypeError(
            f"{operator} is a processor, and reconcile asks for the calls of an operator: ask the service in the "
            "called function, by call.idempotency_key, or call in an operator such as map_values."
        )
    if calls.batch_size is not None or calls.batch_wait:
        raise TypeError(
            f"{operator} is a processor, which calls functions with one argument: write Calls without batch_size and "
            "batch_wait."
        )
    for each in functions:
        if has_mark(each):
            raise TypeError(
                f"{operator} is a processor, which calls functions with one argument, and {name_of_function(each)} is "
                "marked as one on columns: remove the mark, and give it one argument."
            )


def _check_no_other_failure(operator: str, calls: Calls, kind: str) -> None:
    """Raise TypeError if Calls says what becomes of failures that the method `failed` of `kind` receives."""
    if failure_of(calls) is not CallFailure.RAISE:
        option = "on_failure" if calls.then is None else "then"
        raise TypeError(
            f"{operator} has {option} in Calls, but {kind}.failed receives the failures of its calls: write Calls "
            f"without {option}, or remove the method."
        )


def _declared(operator: str, functions: object) -> list[Callable[..., Any]]:
    """Return the functions of a processor, each with a name of its own."""
    if not isinstance(functions, tuple | list):
        raise TypeError(
            f"Expected the call_functions of {operator} as a tuple of functions, got {functions!r:.100}: write "
            "call_functions=(function,)."
        )
    known: set[str] = set()
    for each in functions:
        if not callable(each):
            raise TypeError(f"Expected functions as call_functions of {operator}, got {each!r:.100}.")
        if (name := _stored_name(each)) in known:
            raise TypeError(
                f"{operator} has two call_functions named {name}, by which a waiting call finds its function: rename "
                f"{name_of_function(each)}."
            )
        known.add(name)
    return [*functions]


def _called(calls: Calls, function: Callable[..., Any]) -> CalledFunction:
    """Return a declared function; raises TypeError if `calls` cannot call it with one argument."""
    checked_call(calls, function, "function(argument)")
    return CalledFunction(
        name=_stored_name(function),
        function=function,
        takes=given_parameters(function),
        argument_serde=calls.value_serde or argument_serde_of(function),
        answer_serde=calls.answer_serde or answer_serde_of(function),
    )


def _stored_name(function: Callable[..., Any]) -> str:
    """Return the name by which a waiting call finds its function."""
    if isinstance(function, partial):
        return _stored_name(function.func)
    return function.__name__ if inspect.isroutine(function) else type(function).__name__
