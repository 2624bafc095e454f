"""What a field of an operation may hold: a reader says which words of a value are not built, and makes an object of it.

The readers are the registry of what is built: a word that no table has is "not built", never an error of the case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Reader(Protocol):
    """Reads one field."""

    def missing(self, value: Any) -> Iterator[str]:
        """Yield what `value` asks for that is not built."""
        ...

    def read(self, value: Any) -> Any:
        """Return the object that `value` describes."""
        ...


@dataclass(frozen=True)
class Plain:
    """A value that is taken as it is: a name, a number, a flag, a list of names."""

    def missing(self, value: Any) -> Iterator[str]:
        """Yield nothing: any value will do."""
        yield from ()

    def read(self, value: Any) -> Any:
        """Return `value`."""
        return value


PLAIN = Plain()


@dataclass(frozen=True)
class Choice:
    """A word that stands for itself: a kind of store, the value of a setting."""

    kind: str
    words: tuple[str, ...]

    def missing(self, value: Any) -> Iterator[str]:
        """Yield `kind word` when the word is not among `words`."""
        if value not in self.words:
            yield f"{self.kind} {value}"

    def read(self, value: Any) -> Any:
        """Return `value`."""
        return value


@dataclass(frozen=True)
class Words:
    """A function, serde or processor by its name: `"name"` or `["name", argument...]`.

    makers: name -> maker, called with the arguments.
    """

    kind: str
    makers: Mapping[str, Callable[..., Any]]

    def missing(self, value: Any) -> Iterator[str]:
        """Yield `kind name` when the name is in no table."""
        name, _ = name_and_arguments(value)
        if name not in self.makers:
            yield f"{self.kind} {name}"

    def read(self, value: Any) -> Any:
        """Return what the name's maker makes of the arguments."""
        name, arguments = name_and_arguments(value)
        return self.makers[name](*arguments)


@dataclass(frozen=True)
class Fields:
    """An object with named fields: an option such as `consumed`.

    make: called with the fields that are present, read. decisive: a field without which the others say nothing: where
    its value is not built, the others are passed over.
    """

    kind: str
    readers: Mapping[str, Reader]
    make: Callable[..., Any]
    decisive: str | None = None

    def missing(self, value: Mapping[str, Any]) -> Iterator[str]:
        """Yield `kind.field` for unknown fields, and what the fields miss."""
        if self.decisive is not None:
            decisive = list(self.readers[self.decisive].missing(value[self.decisive]))
            if decisive:
                yield from decisive
                return
        for name, content in value.items():
            if name not in self.readers:
                yield f"{self.kind}.{name}"
            else:
                yield from self.readers[name].missing(content)

    def read(self, value: Mapping[str, Any]) -> Any:
        """Return what `make` makes of the fields."""
        given = {name: self.readers[name].read(content) for name, content in value.items() if content is not None}
        return self.make(**given)


@dataclass(frozen=True)
class ListOf:
    """A list of values that `item` reads."""

    item: Reader

    def missing(self, value: Sequence[Any]) -> Iterator[str]:
        """Yield what the items miss."""
        for item in value:
            yield from self.item.missing(item)

    def read(self, value: Sequence[Any]) -> list[Any]:
        """Return the items read."""
        return [self.item.read(item) for item in value]


def name_and_arguments(reference: Any) -> tuple[str, list[Any]]:
    """Split `"name"` or `["name", argument...]`."""
    if isinstance(reference, str):
        return reference, []
    return reference[0], list(reference[1:])
