"""The reference processors of FORMAT.md section 8.2: those of section 8.1 that need no other key, as fixed-key
processors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock import FixedKeyProcessor, FixedKeyProcessorSupplier, FixedKeyRecord, StoreBuilder
from tests.oracle.interpreter.processors import PROCESSORS, Each
from tests.oracle.interpreter.vocabulary import Words

_NAMES = (
    "pass",
    "drop",
    "twice",
    "append",
    "stamp",
    "running_count",
    "refuse",
    "show_headers",
    "metadata",
    "times",
    "catch",
)


class FixedKeyEach(FixedKeyProcessor):
    """Runs the function of an Each, which sees a FixedKeyRecord and the context of fixed keys."""

    def __init__(self, each: Each) -> None:
        self._body: Callable[..., None] = each.body

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        """Hand the record to the function."""
        self._body(self.context, record)


class FixedKeySupplier(FixedKeyProcessorSupplier):
    """Makes fixed-key processors of a case and brings the stores that the case gives them."""

    def __init__(self, factory: Callable[[], FixedKeyProcessor], owned_stores: Sequence[StoreBuilder]) -> None:
        self._factory = factory
        self._owned_stores = owned_stores

    def get(self) -> FixedKeyProcessor:
        """Return a new processor."""
        return self._factory()

    def stores(self) -> Sequence[StoreBuilder]:
        """Return the stores of the case's `owned_stores`."""
        return self._owned_stores


def _fixed(maker: Callable[..., Callable[[], Each]]) -> Callable[..., Callable[[], FixedKeyProcessor]]:
    def make(*arguments: Any) -> Callable[[], FixedKeyProcessor]:
        factory = maker(*arguments)
        return lambda: FixedKeyEach(factory())

    return make


FIXED_KEY_PROCESSORS = Words("fixed-key processor", {name: _fixed(PROCESSORS.makers[name]) for name in _NAMES})
