"""Arguments that users may pass as a processor supplier, and their checks.

A supplier must return a new processor each time.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from penstock.plan.user_lines import function_line
from penstock.processor.api import KOut, Processor, ProcessorSupplier, SimpleSupplier, VOut
from penstock.processor.calling_processor import CallingSupplier
from penstock.processor.fixed_key import FixedKeyAdapter, FixedKeyProcessor, FixedKeyProcessorSupplier
from penstock.processor.value_transformer import (
    SimpleValueTransformerSupplier,
    ValueTransformerWithKey,
    ValueTransformerWithKeySupplier,
)
from penstock.processor.wrapper import ProcessorWrapper
from penstock.signatures import misfit, signature_of
from penstock.state.api import StoreBuilder

SupplierLike = ProcessorSupplier | Callable[[], Processor]
"""A ProcessorSupplier, or a callable without arguments that returns a new Processor."""

FixedKeySupplierLike = FixedKeyProcessorSupplier | Callable[[], FixedKeyProcessor]
"""A FixedKeyProcessorSupplier, or a callable without arguments that returns a new FixedKeyProcessor."""

ValueTransformerSupplierLike = ValueTransformerWithKeySupplier | Callable[[], ValueTransformerWithKey]
"""A ValueTransformerWithKeySupplier, or a callable without arguments that returns a new ValueTransformerWithKey."""


def checked_supplier(supplier: SupplierLike) -> ProcessorSupplier:
    """Return `supplier` as a ProcessorSupplier (Kafka class: ApiUtils.checkSupplier).

    Raises TypeError if it makes other objects than processors, ValueError if it returns the same one twice.
    """
    if isinstance(supplier, ProcessorSupplier):
        _check(supplier, supplier.get, Processor)
        return supplier
    _check(supplier, supplier, Processor)
    return SimpleSupplier(supplier)


def checked_fixed_key_supplier(supplier: FixedKeySupplierLike) -> ProcessorSupplier:
    """Return `supplier`, of fixed-key processors, as a ProcessorSupplier.

    Raises the errors of `checked_supplier`.
    """
    if isinstance(supplier, FixedKeyProcessorSupplier):
        _check(supplier, supplier.get, FixedKeyProcessor)
        return _AdaptingSupplier(supplier)
    _check(supplier, supplier, FixedKeyProcessor)
    return _AdaptingSupplier(_SimpleFixedKeySupplier(supplier))


class _SimpleFixedKeySupplier(FixedKeyProcessorSupplier):
    """Makes fixed-key processors with a factory."""

    def __init__(self, factory: Callable[[], FixedKeyProcessor]) -> None:
        self._factory = factory

    def get(self) -> FixedKeyProcessor:
        return self._factory()


class _AdaptingSupplier(ProcessorSupplier):
    """Makes processors that run fixed-key processors."""

    def __init__(self, fixed_key_supplier: FixedKeyProcessorSupplier) -> None:
        self.fixed_key_supplier = fixed_key_supplier

    def get(self) -> Processor:
        return FixedKeyAdapter(self.fixed_key_supplier.get)

    def stores(self) -> Sequence[StoreBuilder]:
        return self.fixed_key_supplier.stores()


def forwarded_types(supplier: ProcessorSupplier) -> tuple[Any, Any]:
    """Return the types of the keys and values forwarded by processors of `supplier`.

    They are the type parameters of the processor's class, None if the class has no such parameters. The key's type is
    also None if the key stays the same.
    """
    if isinstance(supplier, _AdaptingSupplier):
        return None, _type_arguments(type(supplier.fixed_key_supplier.get()), FixedKeyProcessor).get(VOut)
    arguments = _type_arguments(type(supplier.get()), Processor)
    return arguments.get(KOut), arguments.get(VOut)


def _type_arguments(kind: type, base: type) -> dict[Any, Any]:
    """Return the arguments of `kind` for the type parameters of `base`.

    Args:
        kind: a subclass of `base`.
        base: a generic class.
    """
    for written in vars(kind).get("__orig_bases__", kind.__bases__):
        parent = typing.get_origin(written) or written
        if isinstance(parent, type) and issubclass(parent, base):
            given = dict(zip(getattr(parent, "__parameters__", ()), typing.get_args(written), strict=False))
            if parent is base:
                return given
            return {name: given.get(found, found) for name, found in _type_arguments(parent, base).items()}
    return {}


def wrapped_supplier(
    wrapper: ProcessorWrapper | None, processor_name: str, supplier: ProcessorSupplier
) -> ProcessorSupplier:
    """Return the supplier of the node `processor_name`, wrapped if there is a `wrapper`."""
    if wrapper is None:
        return supplier
    if isinstance(supplier, CallingSupplier):
        inner = wrapped_supplier(wrapper, processor_name, supplier.inner)
        check_answered(inner)
        if receives_failures(supplier.inner) and not receives_failures(inner):
            raise TypeError(
                f"{type(user_processor(inner)).__qualname__} wraps processor {processor_name}, and must define "
                "failed(self, record, error) as that does, which receives the failures of its calls."
            )
        return supplier.around(inner)
    if isinstance(supplier, _AdaptingSupplier):
        wrapped = wrapper.wrap_fixed_key_processor_supplier(processor_name, supplier.fixed_key_supplier)
        return _AdaptingSupplier(wrapped)
    return wrapper.wrap_processor_supplier(processor_name, supplier)


def checked_value_transformer_supplier(supplier: ValueTransformerSupplierLike) -> ValueTransformerWithKeySupplier:
    """Return `supplier` as a ValueTransformerWithKeySupplier; raises TypeError if that is impossible."""
    if isinstance(supplier, ValueTransformerWithKeySupplier):
        return supplier
    if not callable(supplier):
        raise TypeError(
            "Expected a ValueTransformerWithKeySupplier or a callable that returns a new ValueTransformerWithKey, got "
            f"{supplier!r}: give its class, or `lambda: ...`."
        )
    return SimpleValueTransformerSupplier(supplier)


def _check(supplier: object, get: Callable[[], object], expected: type[Processor] | type[FixedKeyProcessor]) -> None:
    if supplier is None:
        raise TypeError("processorSupplier cannot be null")
    if not callable(get):
        raise TypeError(
            f"Expected a {expected.__name__}Supplier or a callable that returns a new {expected.__name__}, "
            f"got {supplier!r}: give its class, or `lambda: ...`."
        )
    name = _name(supplier)
    _check_no_arguments(get, expected)
    first, second = get(), get()
    if not isinstance(first, expected):
        is_other = isinstance(first, Processor | FixedKeyProcessor)
        method = "process_values" if expected is Processor else "process"
        hint = f" {method}() takes this one." if is_other else ""
        raise TypeError(f"{name} returned {first!r} where a {expected.__name__} was expected.{hint}")
    if type(first).process is expected.process:
        raise TypeError(f"{type(first).__qualname__} must define process(self, record).")
    _check_process(first)
    if first is second:
        raise ValueError(
            f"{name} generates single reference. {name}#get() must return a new object each time it is called."
        )


def _check_no_arguments(make: Callable[[], object], expected: type[Processor] | type[FixedKeyProcessor]) -> None:
    if (why := misfit(make)) is not None:
        raise TypeError(
            f"Expected a callable without arguments that returns a new {expected.__name__}, got {function_line(make)} "
            f"({why}): write a subclass of {expected.__name__} and give that, or `lambda: MyProcessor(...)`."
        )


def check_answered(supplier: ProcessorSupplier) -> None:
    """Raise TypeError unless the processors of `supplier` receive the answers of their calls."""
    processor = user_processor(supplier)
    kind = type(processor)
    if kind.answered in (Processor.answered, FixedKeyProcessor.answered):
        raise TypeError(
            f"{kind.__qualname__} must define answered(self, record, answer), which receives the answers of its calls."
        )
    _check_method(kind, processor.answered, "answered(self, record, answer)")


def receives_failures(supplier: ProcessorSupplier) -> bool:
    """Return whether the processors of `supplier` receive the failures of their calls.

    Raises TypeError if their method `failed` has another form.
    """
    processor = user_processor(supplier)
    kind = type(processor)
    if kind.failed in (Processor.failed, FixedKeyProcessor.failed):
        return False
    _check_method(kind, processor.failed, "failed(self, record, error)")
    return True


def user_processor(supplier: ProcessorSupplier) -> Processor | FixedKeyProcessor:
    """Return a new processor of the user's class."""
    made = supplier.get()
    return made.inner if isinstance(made, FixedKeyAdapter) else made


def _check_process(processor: Processor | FixedKeyProcessor) -> None:
    """Raise TypeError unless `process` accepts one record and is a plain function."""
    _check_method(type(processor), processor.process, "process(self, record)")


def _check_method(kind: type, method: Callable[..., Any], form: str) -> None:
    """Raise TypeError unless a method of a processor has the form `form` and is a plain function."""
    name = f"{kind.__qualname__}.{method.__name__}"
    if (why := misfit(method, *form.rstrip(")").split(", ")[1:])) is not None:
        raise TypeError(f"{kind.__qualname__} must define {form}: {name}{signature_of(method)} does not fit ({why}).")
    if inspect.isgeneratorfunction(method):
        raise TypeError(
            f"{name} is a generator function, whose code would not run: send records on with "
            "self.context.forward(record) in place of `yield`."
        )
    if inspect.iscoroutinefunction(method):
        raise TypeError(
            f"{name} is a coroutine function, which a task would call and never await: write `def`, not `async def`."
        )


def _name(supplier: object) -> str:
    kind = supplier if isinstance(supplier, type) else type(supplier)
    return f"{kind.__module__}.{kind.__qualname__}"


def check_store_builder(builder: object) -> None:
    """Raise TypeError unless `builder` is a StoreBuilder."""
    if builder is None:
        raise TypeError("storeBuilder cannot be null")
    if not isinstance(builder, StoreBuilder):
        raise TypeError(
            f"Expected a StoreBuilder, got {builder!r:.100}: Stores.key_value_store_builder(supplier, key_serde, "
            "value_serde) returns one, for example."
        )
