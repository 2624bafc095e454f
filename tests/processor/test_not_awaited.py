"""A coroutine that nothing awaits is an error, not a result."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ClassVar

import pytest

from penstock import Consumed, KStream, Produced, Serdes, StreamsBuilder
from penstock.errors import StreamsError
from penstock.processor.not_awaited import check_awaited, check_first_awaited, not_awaited_hint
from tests.task.topologies import batch_of, task_of

STRING = Serdes.string()


async def asked(*arguments: Any) -> bool:
    return False


def test_a_coroutine_is_refused_and_nothing_else() -> None:
    for each in (None, True, asked, [1]):
        check_awaited(each, "predicate")
    check_first_awaited([], "predicate")
    check_first_awaited([True, None], "predicate")
    with pytest.raises(
        TypeError, match=r"The predicate returned a coroutine .* in place of a lambda .* calls=Calls\(\)"
    ):
        check_awaited(asked(), "predicate")
    with pytest.raises(TypeError, match="The action returned a coroutine"):
        check_first_awaited([asked()], "action")


def test_a_message_about_a_coroutine_ends_with_the_remedy() -> None:
    assert not_awaited_hint("text") == ""
    coroutine = asked()
    assert not_awaited_hint(coroutine).startswith(" It is a coroutine that nothing awaits. Give ")
    coroutine.close()


class Kept:
    """Makes coroutines, and closes them at the end, so that they leave no warning."""

    made: ClassVar[list[Coroutine[Any, Any, bool]]] = []

    @classmethod
    def asked(cls, value: Any) -> Any:
        cls.made.append(asked(value))
        return cls.made[-1]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while Kept.made:
        Kept.made.pop().close()


BUILDS: dict[str, Callable[[KStream[Any, Any]], KStream[Any, Any] | None]] = {
    "predicate": lambda stream: stream.filter(lambda key, value: Kept.asked(value), "operator"),
    "action": lambda stream: stream.peek(lambda key, value: Kept.asked(value), "operator"),
    "last action": lambda stream: stream.foreach(lambda key, value: Kept.asked(value), "operator"),
    "mapper": lambda stream: stream.map_values(lambda value: Kept.asked(value)),
}


@pytest.mark.parametrize("records", [1, 40])
@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize("operator", BUILDS)
def test_a_lambda_around_a_coroutine_function_fails(operator: str, execution: str, records: int) -> None:
    builder = StreamsBuilder()
    built = BUILDS[operator](builder.stream("in", Consumed.with_(STRING, STRING)))
    if built is not None:
        built.to("out", Produced.with_(STRING, STRING))
    task = task_of(builder.build(), execution=execution)
    task.add_records("in", 0, batch_of(*[("k", "v", row) for row in range(records)]))
    with pytest.raises(StreamsError) as raised:
        task.process()
    assert "a coroutine that nothing awaits. Give the operator the coroutine function itself" in str(
        raised.value.__cause__
    )
