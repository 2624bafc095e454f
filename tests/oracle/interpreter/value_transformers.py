"""The value transformers of FORMAT.md section 8.3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.processor.value_transformer import ValueTransformerContext, ValueTransformerWithKey
from tests.oracle.interpreter import functions
from tests.oracle.interpreter.stores import plain
from tests.oracle.interpreter.values import number, text
from tests.oracle.interpreter.vocabulary import Words


class Transform(ValueTransformerWithKey):
    """Calls a function of key and value."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def transform(self, key: Any, value: Any) -> Any:
        """Return what the function returns."""
        return self._function(key, value)


class RunningCount(ValueTransformerWithKey):
    """Counts the calls for each key in a store and appends the count to the value."""

    def __init__(self, store_name: str) -> None:
        self._store_name = store_name

    def init(self, context: ValueTransformerContext) -> None:
        """Keep the context."""
        super().init(context)
        self._context = context

    def transform(self, key: Any, value: Any) -> Any:
        """Return the value with the count."""
        store = self._context.get_state_store(self._store_name)
        count = number(plain(store.get(key))) + 1
        store.put(key, count)
        return f"{text(value)}#{count}"


VALUE_TRANSFORMERS = Words(
    "value transformer",
    {
        "key_and_value": lambda: lambda: Transform(lambda k, v: f"{text(k)}:{text(v)}"),
        "append": lambda a: lambda: Transform(lambda k, v: text(v) + a),
        "null_if_contains": lambda a: lambda: Transform(lambda k, v: None if a in text(v) else v),
        "refuse": lambda a: lambda: Transform(functions.VALUE_MAPPERS.makers["refuse"](a)),
        "running_count": lambda name: lambda: RunningCount(name),
    },
)
