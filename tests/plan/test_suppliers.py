"""What users may give as a supplier of processors, and what is said of everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.plan.suppliers import (
    checked_fixed_key_supplier,
    checked_supplier,
    checked_value_transformer_supplier,
    forwarded_types,
    wrapped_supplier,
)
from penstock.plan.topology import Topology
from penstock.processor.api import Processor, ProcessorSupplier
from penstock.processor.fixed_key import FixedKeyProcessor, FixedKeyProcessorSupplier, FixedKeyRecord
from penstock.processor.value_transformer import ValueTransformerWithKey
from penstock.processor.wrapper import ProcessorWrapper
from penstock.record import Record
from tests.plan.plans import store


class Pass(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class PassValues(FixedKeyProcessor[str, str, int]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.forward(record)


class Lengths(Processor[str, str, str, int]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


class MoreLengths(Lengths):
    pass


class Unfinished(Processor):
    pass


class Generator(Processor):
    def process(self, record: Record[Any, Any]) -> Any:
        yield record


class Coroutine(Processor):
    async def process(self, record: Record[Any, Any]) -> None:  # type: ignore[override]  # the mistake
        pass


class TooMany(Processor):
    def process(self, key: Any, value: Any) -> None:  # type: ignore[override]  # the mistake
        pass


def test_a_supplier_must_return_a_new_processor_each_time() -> None:
    processor = Pass()
    with pytest.raises(ValueError, match="generates single reference"):
        Topology().add_source("S", "in").add_processor("P", lambda: processor, "S")


@pytest.mark.parametrize("supplier", [Pass(), lambda: "no processor", None])
def test_a_supplier_must_make_processors(supplier: Any) -> None:
    with pytest.raises(TypeError):
        Topology().add_source("S", "in").add_processor("P", supplier, "S")


MISTAKES: list[tuple[Any, str]] = [
    (Unfinished, r"Unfinished must define process\(self, record\)"),
    (Generator, "Generator.process is a generator function"),
    (Coroutine, "Coroutine.process is a coroutine function"),
    (TooMany, r"TooMany.process\(key: 'Any', value: 'Any'\) -> 'None' does not fit"),
    (lambda record: Pass(), "Expected a callable without arguments that returns a new Processor"),
    (PassValues, r"where a Processor was expected\. process_values\(\) takes this one"),
]


@pytest.mark.parametrize(("supplier", "says"), MISTAKES)
def test_a_mistake_of_a_supplier_is_said(supplier: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        checked_supplier(supplier)


def test_processors_that_may_change_keys_are_refused_among_fixed_keys() -> None:
    with pytest.raises(TypeError, match=r"where a FixedKeyProcessor was expected\. process\(\) takes this one"):
        checked_fixed_key_supplier(Pass)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TypeError, match="processorSupplier cannot be null"):
        checked_fixed_key_supplier(None)  # type: ignore[arg-type]  # the mistake


def test_a_supplier_is_taken_as_it_is_and_a_callable_becomes_one() -> None:
    supplier = checked_supplier(Pass)
    assert isinstance(supplier, ProcessorSupplier)
    assert supplier.get() is not supplier.get()
    assert checked_supplier(supplier) is supplier


def test_the_stores_of_a_fixed_key_supplier_are_those_of_its_processors() -> None:
    own = store()

    class Supplier(FixedKeyProcessorSupplier):
        def get(self) -> FixedKeyProcessor:
            return PassValues()

        def stores(self) -> list[Any]:
            return [own]

    assert list(checked_fixed_key_supplier(Supplier()).stores()) == [own]


@pytest.mark.parametrize(
    ("supplier", "expected"),
    [
        (checked_supplier(Lengths), (str, int)),
        (checked_supplier(MoreLengths), (str, int)),
        (checked_supplier(Pass), (None, None)),
        (checked_fixed_key_supplier(PassValues), (None, int)),
    ],
)
def test_forwarded_types_are_the_parameters_of_the_class(
    supplier: ProcessorSupplier, expected: tuple[Any, Any]
) -> None:
    assert forwarded_types(supplier) == expected


class Telling(ProcessorWrapper):
    """Keeps the names and kinds that it is called with, and wraps nothing."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def wrap_processor_supplier(self, processor_name: str, supplier: ProcessorSupplier) -> ProcessorSupplier:
        self.calls.append((processor_name, "any"))
        return supplier

    def wrap_fixed_key_processor_supplier(
        self, processor_name: str, supplier: FixedKeyProcessorSupplier
    ) -> FixedKeyProcessorSupplier:
        self.calls.append((processor_name, "fixed"))
        return supplier


@pytest.mark.parametrize("make", [lambda: checked_supplier(Pass), lambda: checked_fixed_key_supplier(PassValues)])
def test_a_wrapper_wraps_each_kind_of_supplier_by_its_own_method(make: Callable[[], ProcessorSupplier]) -> None:
    supplier, wrapper = make(), Telling()
    assert wrapped_supplier(None, "node", supplier) is supplier
    assert type(wrapped_supplier(wrapper, "node", supplier).get()) is type(supplier.get())
    assert wrapper.calls == [("node", "any" if type(supplier.get()) is Pass else "fixed")]


class Lower(ValueTransformerWithKey):
    def transform(self, key: Any, value: Any) -> Any:
        return value.lower()


def test_a_value_transformer_comes_from_a_supplier_or_a_callable() -> None:
    supplier = checked_value_transformer_supplier(Lower)
    assert supplier.get().transform("k", "V") == "v"
    assert checked_value_transformer_supplier(supplier) is supplier
    with pytest.raises(TypeError, match=r"Expected a ValueTransformerWithKeySupplier or a callable.*, got 'text'"):
        checked_value_transformer_supplier("text")  # type: ignore[arg-type]  # the mistake
