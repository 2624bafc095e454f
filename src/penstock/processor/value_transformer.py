"""The value transformer of a table.

It is a function of key and value with a context and stores, which cannot forward.
"""

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
    """A value transformer's interface to its task, without forwarding.

    Kafka class: ForwardingDisabledProcessorContext.
    """

    def forward(self, record: Any, child_name: str | None = None) -> NoReturn:
        """Raise StreamsError: only the return value of `transform` is used."""
        raise StreamsError(_NO_FORWARD)


class ValueTransformerWithKey:
    """Base class of users' transformers, which give a table's entries other values.

    Override `transform`, and `init` and `close` if needed. The inherited `init` stores the context in `self.context`.
    Kafka class: ValueTransformerWithKey.
    """

    context: ValueTransformerContext

    def init(self, context: ValueTransformerContext) -> None:
        """Prepare for entries, and store the context."""
        self.context = context

    @abstractmethod
    def transform(self, key: Any, value: Any) -> Any:
        """Return the new value of the entry.

        `value` is None for a deleted entry; a result of None deletes it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define transform(self, key, value).")

    def close(self) -> None:
        """Release the resources of `init`."""


class ValueTransformerWithKeySupplier:
    """Makes value transformers and declares their stores (Kafka class: ValueTransformerWithKeySupplier).

    Any callable without arguments that returns a new ValueTransformerWithKey can replace it.
    """

    @abstractmethod
    def get(self) -> ValueTransformerWithKey:
        """Return a new transformer.

        The table has one, and so has each node that reads the table without a store.
        """
        raise NotImplementedError(f"{type(self).__name__} must define get(self).")

    def stores(self) -> Sequence[StoreBuilder]:
        """Return the stores to add to the topology and connect to the table's node."""
        return ()


class SimpleValueTransformerSupplier(ValueTransformerWithKeySupplier):
    """Makes transformers with a factory, such as a class.

    Args:
        factory: returns a new transformer.
    """

    def __init__(self, factory: Callable[[], ValueTransformerWithKey]) -> None:
        self._factory = factory

    def get(self) -> ValueTransformerWithKey:
        """Return a new transformer."""
        return self._factory()


def initialized(supplier: ValueTransformerWithKeySupplier, context: ProcessorContext) -> ValueTransformerWithKey:
    """Return a new initialised transformer of `supplier`; raises TypeError if it has another type."""
    transformer = supplier.get()
    if not isinstance(transformer, ValueTransformerWithKey):
        raise TypeError(f"{supplier!r} returned {transformer!r} where a ValueTransformerWithKey was expected.")
    transformer.init(ValueTransformerContext(context))
    return transformer
