"""What users may pass where a ProcessorSupplier is expected, and the check that it makes a new processor each time."""

from __future__ import annotations

from collections.abc import Callable

from penstock.processor.api import Processor, ProcessorSupplier, SimpleSupplier

SupplierLike = ProcessorSupplier | Callable[[], Processor]
"""A ProcessorSupplier, or a callable without arguments that returns a new Processor."""


def checked_supplier(supplier: SupplierLike) -> ProcessorSupplier:
    """Return `supplier` as a ProcessorSupplier.

    Raises TypeError when it makes anything but processors, ValueError when it gives the same one twice (Kafka class:
    ApiUtils.checkSupplier).
    """
    if supplier is None:
        raise TypeError("processorSupplier cannot be null")
    name = _name(supplier)
    if not isinstance(supplier, ProcessorSupplier):
        if not callable(supplier):
            raise TypeError(
                f"Expected a ProcessorSupplier or a callable that returns a new Processor, got {supplier!r}: "
                "give its class, or `lambda: ...`."
            )
        supplier = SimpleSupplier(supplier)
    first, second = supplier.get(), supplier.get()
    if not isinstance(first, Processor):
        raise TypeError(f"{name} returned {first!r} where a Processor was expected.")
    if first is second:
        raise ValueError(
            f"{name} generates single reference. {name}#get() must return a new object each time it is called."
        )
    return supplier


def _name(supplier: object) -> str:
    kind = supplier if isinstance(supplier, type) else type(supplier)
    return f"{kind.__module__}.{kind.__qualname__}"
