"""The value transformer of a table: a function of key and value with a context and stores, which cannot forward."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from penstock.errors import StreamsError
from penstock.processor.api import ProcessorContext
from penstock.processor.fixed_key import FixedKeyProcessorContext
from penstock.state.api import StoreBuilder

_NO_FORWARD = (
    "ProcessorContext#forward() is not supported from this context, as the framework must ensure the key is not "
    "changed (#forward allows changing the key on messages which are sent). Try another function, which doesn't allow "
    "the key to be changed (for example - #transformValues)."
)


class ValueTransformerContext(FixedKeyProcessorContext):
    """What a value transformer may ask of the task: all but to forward (Kafka class:
    ForwardingDisabledProcessorContext)."""

    def forward(self, record: Any, child_name: str | None = None) -> NoReturn:
        """Raise StreamsError: the result of a transformer is what `transform` returns."""
        raise StreamsError(_NO_FORWARD)


class ValueTransformerWithKey:
    """Gives the entries of a table another value: override `transform`, and `init` and `close` where needed (Kafka
    class: ValueTransformerWithKey).

    The inherited `init` stores the context in `self.context`.
    """

    context: ValueTransformerContext

    def init(self, context: ValueTransformerContext) -> None:
        """Prepare for entries; keep the context."""
        self.context = context

    @abstractmethod
    def transform(self, key: Any, value: Any) -> Any:
        """Return the new value of the entry; `value` is None if it was deleted, and None deletes it."""
        raise NotImplementedError(f"{type(self).__name__} must define transform(self, key, value).")

    def close(self) -> None:
        """Release what `init` took."""


class ValueTransformerWithKeySupplier:
    """Makes value transformers and names the stores they own (Kafka class: ValueTransformerWithKeySupplier).

    Wherever one is expected, any callable without arguments that returns a new ValueTransformerWithKey will do.
    """

    @abstractmethod
    def get(self) -> ValueTransformerWithKey:
        """Return a new transformer; one serves the table, and one each node that reads the table without a store."""
        raise NotImplementedError(f"{type(self).__name__} must define get(self).")

    def stores(self) -> Sequence[StoreBuilder]:
        """Return the stores to be added to the topology and connected to the table's node."""
        return ()


class SimpleValueTransformerSupplier(ValueTransformerWithKeySupplier):
    """Makes transformers by calling a factory, such as a class."""

    def __init__(self, factory: Callable[[], ValueTransformerWithKey]) -> None:
        """Keep the factory."""
        self._factory = factory

    def get(self) -> ValueTransformerWithKey:
        """Return a new transformer."""
        return self._factory()


def initialized(supplier: ValueTransformerWithKeySupplier, context: ProcessorContext) -> ValueTransformerWithKey:
    """Return a new transformer of `supplier` that is ready; raises TypeError if it is none."""
    transformer = supplier.get()
    if not isinstance(transformer, ValueTransformerWithKey):
        raise TypeError(f"{supplier!r} returned {transformer!r} where a ValueTransformerWithKey was expected.")
    transformer.init(ValueTransformerContext(context))
    return transformer
