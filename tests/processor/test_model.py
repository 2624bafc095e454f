"""Models: when factories run, how many rows a call has, and which objects processes share."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from penstock import Consumed, Produced, Serdes, StreamsBuilder, model
from penstock.processor.arrays import Form
from penstock.processor.column_functions import ColumnFunction, column_function, result_of
from penstock.processor.columns import ColumnError, apply
from penstock.processor.model import _shared
from penstock.testing import TopologyTestDriver
from tests.task.topologies import batch_of, sent, task_of

S, D = Serdes.string(), Serdes.double()


def made(path: Path, factor: int = 2, batch_size: int = 4) -> Any:
    """Return a model that notes in a file that it was loaded, and the lengths of its columns."""

    @model(batch_size=batch_size)
    def scores() -> Callable[[list[str]], list[float]]:
        with path.open("a") as file:
            file.write("loaded\n")

        def score(values: list[str]) -> list[float]:
            with path.open("a") as file:
                file.write(f"{len(values)}\n")
            return [float(len(value) * factor) for value in values]

        return score

    return scores


def function_of(decorated: Any) -> ColumnFunction:
    function = column_function(decorated)
    assert function is not None
    return function


def failing(row: int, error: Exception) -> None:
    raise error


@model(batch_size=3)
def in_module() -> Callable[[list[int]], list[int]]:
    return lambda values: [value + 1 for value in values]


def test_a_model_is_loaded_by_the_first_call_and_takes_batches(tmp_path: Path) -> None:
    log = tmp_path / "log"
    function = function_of(made(log))
    assert not log.exists()
    assert apply(function, (["a"] * 10,), failing).results == [2.0] * 10
    assert apply(function, (["ab"],), failing).results == [4.0]
    assert log.read_text().split() == ["loaded", "4", "4", "2", "1"]


def test_tasks_that_unpickle_a_model_share_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    data = cloudpickle.dumps(function_of(made(log)))
    for _ in range(2):
        assert pickle.loads(data)("abc") == 6.0
    other = pickle.loads(cloudpickle.dumps(function_of(made(log, factor=3))))
    assert other("abc") == 9.0
    assert log.read_text().split().count("loaded") == 2


def test_a_model_that_earlier_versions_pickled_is_loaded() -> None:
    def factory() -> Callable[[list[str]], list[str]]:
        return list

    loaded = _shared(factory)  # as those call it
    assert loaded.function()(["a"]) == ["a"]
    assert not loaded.is_coroutine


def test_a_model_of_a_module_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(in_module)) is in_module


def test_threads_load_a_model_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    scores = made(log)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(scores, [["a"]] * 50)) == [[2.0]] * 50
    assert log.read_text().split().count("loaded") == 1


def test_annotations_name_the_columns_and_the_result() -> None:
    @model()
    def of_arrays() -> Callable[[pa.StringArray, np.ndarray], list[float]]:
        return lambda keys, values: [1.0] * len(keys)

    @model()
    def unknown():  # type: ignore[no-untyped-def]  # that is what is tested
        return lambda values: values

    function = function_of(of_arrays)
    assert [column.form for column in function._columns] == [Form.ARROW, Form.NUMPY]
    assert (result_of(function), function.batch_size) == (float, 64)
    assert result_of(function_of(unknown)) is None
    assert function_of(unknown)(5) == 5


def test_a_model_with_two_columns_takes_the_keys() -> None:
    @model()
    def both() -> Callable[[list[str], list[str]], list[str]]:
        return lambda keys, values: [key + value for key, value in zip(keys, values, strict=True)]

    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(S, S)).map_values(both).to("out", Produced.with_(S, S))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", S, S).pipe_input("k", "v")
        assert driver.create_output_topic("out", S, S).read_value() == "kv"


def test_a_model_that_cannot_be_loaded_fails_the_task_at_once_and_is_loaded_again_later() -> None:
    attempts: list[int] = []

    @model(batch_size=2)
    def late() -> Callable[[list[str]], list[str]]:
        attempts.append(1)
        if len(attempts) == 1:
            raise FileNotFoundError("weights.bin")
        return list

    function = function_of(late)
    with pytest.raises(ColumnError, match=r"factory of the model .*late failed \(FileNotFoundError: weights.bin\)"):
        apply(function, (["a"] * 10,), lambda row, error: None)
    assert len(attempts) == 1
    assert apply(function, (["a"] * 3,), failing).results == ["a"] * 3


@pytest.mark.parametrize("returned", [None, 5])
def test_a_factory_must_return_a_function(returned: Any) -> None:
    @model()
    def wrong() -> Any:
        return returned

    with pytest.raises(ColumnError, match="where a function on columns was expected"):
        function_of(wrong)("a")


def test_coroutine_functions_are_refused() -> None:
    async def later() -> Any:
        return None

    with pytest.raises(TypeError, match="decorate a factory made with def"):
        model()(later)  # type: ignore[arg-type]  # that is what is tested

    @model()
    def makes_one() -> Any:
        return later

    with pytest.raises(
        ColumnError, match=r"where a function on columns was expected.* Callable\[\[list\[Order\]\], Await"
    ):
        function_of(makes_one)("a")


def test_a_model_on_single_values_is_refused() -> None:
    def fraud() -> Callable[[str], float]: ...

    with pytest.raises(TypeError, match=r"fraud is annotated to take str, which is a single value: .* list\[str\]"):
        model()(fraud)  # type: ignore[arg-type]  # that is what is tested


def test_a_model_without_parentheses_is_refused() -> None:
    bare: Any = model

    def fraud() -> Any: ...

    with pytest.raises(TypeError, match=r"model returns the decorator of fraud: write @model\(\) with parentheses"):
        bare(fraud)


def test_a_model_for_calls_is_a_coroutine_function() -> None:
    @model(batch_size=8)
    def remote() -> Callable[[list[int]], Awaitable[list[int]]]:
        async def score(values: list[int]) -> list[int]:
            return [value + 1 for value in values]

        return score

    @model()
    def wrong() -> Callable[[list[int]], Awaitable[list[int]]]:
        return lambda values: values  # type: ignore[arg-type,return-value]  # that is what is tested

    loaded = pickle.loads(cloudpickle.dumps(function_of(remote)))
    assert asyncio.run(loaded.function([1, 2])) == [2, 3]
    with pytest.raises(ColumnError, match="where a coroutine function on columns was expected: return a function made"):
        asyncio.run(function_of(wrong).function([1]))


@pytest.mark.parametrize(("size", "error"), [(0, ValueError), ("64", TypeError), (True, TypeError)])
def test_the_batch_size_is_a_number_of_rows(size: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="batch_size"):
        model(batch_size=size)


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_an_operator_calls_a_model_with_batches_of_a_task(execution: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    builder = StreamsBuilder()
    builder.stream("in").map_values(made(log, batch_size=16)).map_values(str).to("out")
    task = task_of(builder.build(), execution=execution)
    task.add_records("in", 0, batch_of(*[("k", "v" * row, row) for row in range(40)]))
    task.process()
    assert [value for _, _, value, _ in sent(task)] == [str(row * 2.0) for row in range(40)]
    sizes = ["16", "16", "8"] if execution == "auto" else ["1"] * 40
    assert log.read_text().split() == ["loaded", *sizes]
