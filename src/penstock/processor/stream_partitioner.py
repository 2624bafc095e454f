"""The partitioners of users, which take the headers of the record or not (KIP-1321).

A partitioner takes them if it requires five positional parameters; otherwise it takes four, as before.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.record import Headers
from penstock.signatures import signature_of

PartitionerWithHeaders = Callable[[str, Any, Any, Headers, int], "set[int] | None"]
"""A partitioner of topic, key, value, headers and number of partitions."""

_FORMS = (
    "partitioner(topic, key, value, number_of_partitions) or "
    "partitioner(topic, key, value, headers, number_of_partitions)"
)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class _WithoutHeaders:
    """Calls a partitioner that does not take the headers.

    Args:
        partitioner: the user's partitioner.
    """

    partitioner: Callable[..., set[int] | None]

    def __call__(self, topic: str, key: Any, value: Any, headers: Headers, partitions: int) -> set[int] | None:
        return self.partitioner(topic, key, value, partitions)


def with_headers(partitioner: Callable[..., set[int] | None]) -> PartitionerWithHeaders:
    """Return `partitioner` as a function that takes the headers too.

    Raises TypeError as `check_partitioner`.
    """
    return partitioner if _takes_headers(partitioner) else _WithoutHeaders(partitioner)


def check_partitioner(owner: str, partitioner: object) -> None:
    """Raise TypeError unless `partitioner` is None or can be called in one of the two forms.

    owner: the options or the node with the partitioner, for the message.
    """
    if partitioner is None:
        return
    if not callable(partitioner):
        raise TypeError(f"Expected a function as partitioner of {owner}, got {partitioner!r}: write {_FORMS}.")
    try:
        _takes_headers(partitioner)
    except TypeError as error:
        raise TypeError(f"The partitioner of {owner} cannot be called: {error}") from None


def _takes_headers(partitioner: Callable[..., Any]) -> bool:
    """Return whether `partitioner` takes the headers; one without a readable signature does not.

    Raises TypeError if it takes neither four nor five arguments.
    """
    signature = signature_of(partitioner)
    if signature is None:
        return False
    required = sum(each.kind in _POSITIONAL and each.default is each.empty for each in signature.parameters.values())
    takes = required == 5
    try:
        signature.bind(*range(5 if takes else 4))
    except TypeError as error:
        name = partitioner.__qualname__ if inspect.isroutine(partitioner) else repr(partitioner)
        raise TypeError(f"{name}{signature} does not fit ({error}); write {_FORMS}.") from None
    return takes
