"""The functions that a processor declares: their checks, names and serdes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from penstock import (
    Calls,
    Consumed,
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    ProcessorWrapper,
    Record,
    Serdes,
    StreamsBuilder,
    TopologyConfig,
    vectorized,
)
from penstock.dsl.call_functions import processor_calling
from penstock.errors import CallFailedError, TopologyError
from penstock.plan.explicit_names import generated_names
from penstock.plan.suppliers import checked_supplier
from penstock.serdes.answers import PlainAnswerSerde

STRING = Serdes.string()
TEXT = Consumed.with_(STRING, STRING)


@dataclass
class Risk:
    score: float


async def risk(text: str) -> Risk:
    return Risk(len(text))


async def placed(text, *, client):  # type: ignore[no-untyped-def]  # a function without annotations
    return text


def blocking(text: str) -> str:
    return text


@vectorized
async def many(texts: list[str]) -> list[str]:
    return texts


class Service:
    async def ask(self, text: str) -> str:
        return text

    async def __call__(self, text: str) -> str:
        return text


class Unanswered(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.call(risk, record.value)


class Asking(Unanswered):
    def answered(self, record: Record[Any, Any], answer: Any) -> None:
        self.context.forward(record.with_value(answer))


class Two(Unanswered):
    def answered(self, record: Record[Any, Any]) -> None:  # type: ignore[override]  # the mistake
        self.context.forward(record)


class Awaiting(Unanswered):
    async def answered(self, record: Record[Any, Any], answer: Any) -> None:  # type: ignore[override]  # the mistake
        self.context.forward(record)


class Recovering(Asking):
    def failed(self, record: Record[Any, Any], error: CallFailedError) -> None:
        self.context.forward(record)


class Three(Asking):
    def failed(self, record: Record[Any, Any]) -> None:  # type: ignore[override]  # the mistake
        self.context.forward(record)


class UnansweredValues(FixedKeyProcessor):
    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        self.context.call(risk, record.value)


def declared(*functions: Callable[..., Any], calls: Calls | None = None) -> Any:
    return processor_calling("p", checked_supplier(Asking), calls or Calls(), functions, STRING)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"calls": Calls()}, "p has calls, but no call_functions: name all functions that the processor calls"),
        ({"call_functions": (risk,)}, r"p has call_functions, but no calls: add calls=Calls\(\.\.\.\)"),
        ({"calls": Calls(), "call_functions": risk}, r"Expected the call_functions of p as a tuple .* got <function"),
        ({"calls": Calls(), "call_functions": ("risk",)}, "Expected functions as call_functions of p, got 'risk'"),
        ({"calls": 5, "call_functions": (risk,)}, "Expected Calls as calls of p, got 5"),
        ({"calls": Calls(), "call_functions": (risk, partial(risk))}, "p has two call_functions named risk"),
        ({"calls": Calls(), "call_functions": (blocking,)}, "The function blocking is no coroutine function"),
        ({"calls": Calls(threads=1), "call_functions": (risk,)}, "coroutine function, which needs no threads"),
        ({"calls": Calls(), "call_functions": (placed,)}, "takes a client, but Calls has no open"),
        ({"calls": Calls(threads=1), "call_functions": (lambda: 1,)}, r"cannot be called as function\(argument\)"),
        ({"calls": Calls(reconcile=risk), "call_functions": (risk,)}, "p is a processor, and reconcile asks for the"),
        ({"calls": Calls(batch_size=2), "call_functions": (risk,)}, "p is a processor, .* without batch_size"),
        ({"calls": Calls(batch_wait=2), "call_functions": (risk,)}, "p is a processor, .* without batch_size"),
        ({"calls": Calls(), "call_functions": (many,)}, "p is a processor, .* many is marked as one on columns"),
    ],
)
def test_mistakes_are_told(arguments: dict[str, Any], says: str) -> None:
    stream = StreamsBuilder().stream("in", TEXT)
    with pytest.raises(TypeError, match=says):
        stream.process(Asking, named="p", **arguments)


@pytest.mark.parametrize(
    ("processor", "says"),
    [
        (Unanswered, r"Unanswered must define answered\(self, record, answer\), which receives the answers"),
        (Two, r"Two must define answered\(self, record, answer\): Two.answered\(record"),
        (Awaiting, "Awaiting.answered is a coroutine function"),
        (Three, r"Three must define failed\(self, record, error\): Three.failed\(record"),
    ],
)
def test_a_processor_that_calls_receives_answers(processor: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        StreamsBuilder().stream("in", TEXT).process(processor, calls=Calls(), call_functions=(risk,))


def test_a_processor_writes_no_dead_letters_to_its_own_input() -> None:
    stream = StreamsBuilder().stream("in", TEXT)
    with pytest.raises(TopologyError, match="then= of the Calls of p writes the records that fail"):
        stream.process(Asking, named="p", calls=Calls(then="in"), call_functions=(risk,))


@pytest.mark.parametrize(
    ("calls", "option"), [(Calls(on_failure="skip"), "on_failure"), (Calls(then="letters"), "then")]
)
def test_failures_go_to_the_processor_or_elsewhere(calls: Calls, option: str) -> None:
    with pytest.raises(
        TypeError, match=f"p has {option} in Calls, but Recovering.failed .* write Calls without {option}"
    ):
        StreamsBuilder().stream("in", TEXT).process(Recovering, named="p", calls=calls, call_functions=(risk,))


def test_a_processor_of_values_that_calls_receives_answers() -> None:
    with pytest.raises(TypeError, match="UnansweredValues must define answered"):
        StreamsBuilder().stream("in", TEXT).process_values(UnansweredValues, calls=Calls(), call_functions=(risk,))


class HidingAnswers(ProcessorWrapper):
    """Replaces each processor by one without `answered`."""

    def wrap_processor_supplier(self, processor_name: str, supplier: Any) -> Any:
        return checked_supplier(Unanswered) if processor_name == "p" else supplier


class HidingFailures(ProcessorWrapper):
    """Replaces each processor by one without `failed`."""

    def wrap_processor_supplier(self, processor_name: str, supplier: Any) -> Any:
        return checked_supplier(Asking) if processor_name == "p" else supplier


@pytest.mark.parametrize(
    ("wrapper", "says"),
    [
        (HidingAnswers, "Unanswered must define answered"),
        (HidingFailures, r"Asking wraps processor p, and must define failed\(self, record, error\)"),
    ],
)
def test_a_wrapped_processor_receives_answers_and_failures_too(wrapper: type, says: str) -> None:
    builder = StreamsBuilder(TopologyConfig({"processor.wrapper.class": wrapper}))
    builder.stream("in", TEXT).process(Recovering, named="p", calls=Calls(), call_functions=(risk,)).to("out")
    with pytest.raises(TypeError, match=says):
        builder.build()


def test_arguments_and_answers_have_the_serdes_of_the_annotations() -> None:
    found = declared(risk).functions.named("risk")
    assert found.argument_serde.deserialize("t", found.argument_serde.serialize("t", "x")) == "x"
    assert found.answer_serde.deserialize("t", found.answer_serde.serialize("t", Risk(1.5))) == Risk(1.5)
    plain = declared(placed, calls=Calls(open=open)).functions.named("placed")  # type: ignore[arg-type]  # not opened
    assert isinstance(plain.argument_serde, PlainAnswerSerde)
    assert isinstance(plain.answer_serde, PlainAnswerSerde)


def test_the_serdes_of_calls_are_those_of_all_arguments_and_answers() -> None:
    found = declared(risk, calls=Calls(value_serde=STRING, answer_serde=Serdes.json())).functions.named("risk")
    assert found.argument_serde is STRING
    assert found.answer_serde.serialize("t", {}) == b"{}"


def test_methods_objects_and_partial_functions_have_names() -> None:
    service = Service()
    functions = declared(service.ask, service, partial(risk)).functions
    assert functions.call_of(service.ask, "x").function == "ask"
    assert functions.call_of(service, "x").function == "Service"
    assert functions.named("risk").takes == frozenset()


def test_a_generated_name_of_a_processor_with_calls_is_reported() -> None:
    def names(**options: Any) -> str:
        builder = StreamsBuilder()
        builder.stream("in", TEXT).process(Asking, calls=Calls(), call_functions=(risk,), **options).to("out")
        return generated_names(builder._graph.plan())

    assert "KSTREAM-PROCESSOR-0000000001-calls" in names()
    assert names(named="p") == ""
