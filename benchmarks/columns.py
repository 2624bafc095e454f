"""Measures functions on columns beside functions of rows: records a second, on each host.

    python benchmarks/columns.py [--records N] [--only PROGRAM;...] [--hosts task,threads,spark] [--json]

The host `task` is a task alone in this process: bytes in, bytes out, one partition, by CPU time, and by the clock where
a model sleeps. Threads and Spark go from topic to topic of an embedded broker, as a user starts them; rates are by the
clock, after the first results on threads, and after the first epoch on Spark.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if not __package__:  # run as a script: the root of the repository is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.families import Family, key_of
from benchmarks.measuring import Window, watch
from benchmarks.on_spark import application, records_read
from benchmarks.operators import Tasks, batches
from benchmarks.topics import PARTITIONS, client_config, topics
from penstock import Consumed, KStream, Produced, Serdes, StreamsBuilder, model, vectorized
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.producer import ConfluentProducer
from penstock.host.spark.worker.stage import prepare_worker
from penstock.record import TopicPartition
from penstock_broker.process import BrokerProcess

APPLICATION: Final = "benchmark-columns"
HOSTS: Final = ("task", "threads", "spark")
WORDS: Final = 20
"""Words of a line."""

STEPS: Final = 10
"""Functions in a row, in the program that chains them."""

_EPOCHS: Final = 5
"""Epochs of a run on Spark, or a few more, since keys and headers count too."""

_LOOK_SECONDS: Final = 0.01
_WAIT_SECONDS: Final = 120.0
_FIRST_TIMESTAMP: Final = 1_700_000_000_000
_CALL_SECONDS: Final = 0.002
_ROW_SECONDS: Final = 0.000_05
_FEWER: Final = 50
"""How many times fewer records a model takes that is called for each."""

_TEXT, _DOUBLE, _LONG = Serdes.string(), Serdes.double(), Serdes.long()

Stream = KStream[Any, Any]


@dataclass(frozen=True)
class Program:
    """A program in several forms, the first with functions of rows.

    value: makes the value of a record. consumed: how the input is read. forms: add the program to the stream of the
    input, and write to "out". slow: whether a model sleeps in it. caches: whether it has fewer results than records.
    """

    value: Callable[[int], bytes]
    consumed: Consumed
    forms: Mapping[str, Callable[[Stream], None]]
    slow: bool = False
    caches: bool = False

    def build(self, form: str) -> Callable[[StreamsBuilder], None]:
        """Return a function that adds one form of the program to a builder."""
        return lambda builder: self.forms[form](builder.stream("in", self.consumed))

    def records(self, form: str, records: int) -> int:
        """Return how many records a form takes; a model that is called for each record takes few."""
        return max(200, records // (_FEWER if form == "rows" else 5)) if self.slow else records


@dataclass(frozen=True)
class Result:
    """The rate of one form of a program on a host, and how many times that of rows it is."""

    program: str
    host: str
    form: str
    records: int
    records_per_second: float
    times: float


# ---------------------------------------- the users' functions


def ten_of_rows(value: float) -> float:
    """Return the result of ten operations on a number."""
    return ((value * 2 + 1) / 3 - 4) * 5 + 6 - value * 0.5 + value / 7


def ten_of_numpy(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the results of the same operations on an array of numpy."""
    return ((values * 2 + 1) / 3 - 4) * 5 + 6 - values * 0.5 + values / 7


def ten_of_arrow(values: pa.DoubleArray) -> pa.DoubleArray:
    """Return the results of the same operations on an array of Arrow."""
    first = pc.subtract(pc.divide(pc.add(pc.multiply(values, 2), 1), 3), 4)
    second = pc.subtract(pc.add(pc.multiply(first, 5), 6), pc.multiply(values, 0.5))
    return pc.add(second, pc.divide(values, 7))


def one_of_rows(value: float) -> float:
    """Return the result of one operation."""
    return value * 1.01


def one_of_numpy(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the results of one operation on an array of numpy."""
    return values * 1.01


def one_of_arrow(values: pa.DoubleArray) -> pa.DoubleArray:
    """Return the results of one operation on an array of Arrow."""
    return pc.multiply(values, 1.01)


def words_of_arrow(lines: pa.StringArray) -> pa.ListArray:
    """Return the words of lines."""
    return pc.utf8_split_whitespace(pc.utf8_lower(lines))


@vectorized
def values_as_keys(keys: list[str], values: pa.StringArray) -> pa.StringArray:
    """Return the values; the keys, which it does not use, need not become an array."""
    return values


@dataclass
class Order:
    """A value in JSON."""

    number: int
    price: float
    article: str
    is_paid: bool


def total_of_rows(order: Order) -> float:
    """Return the price of an order with its tax."""
    return order.price * 1.2 if order.is_paid else 0.0


def total_of_arrow(orders: pa.StructArray) -> pa.DoubleArray:
    """Return the prices of orders with their tax."""
    return pc.if_else(orders.field("is_paid"), pc.multiply(orders.field("price"), 1.2), 0.0)


def score_of_rows(value: float) -> float:
    """Return what a model says of one number."""
    time.sleep(_CALL_SECONDS + _ROW_SECONDS)
    return value * 2


@model(batch_size=64)
def score_of_batches() -> Callable[[list[float]], list[float]]:
    """Return a model that says the same of many numbers."""

    def score(values: list[float]) -> list[float]:
        time.sleep(_CALL_SECONDS + _ROW_SECONDS * len(values))
        return [value * 2 for value in values]

    return score


def mapped(*functions: Callable[..., Any]) -> Callable[[Stream], None]:
    """Return a program that maps values with each function in turn."""

    def build(stream: Stream) -> None:
        for function in functions:
            stream = stream.map_values(function)
        stream.to("out", Produced.with_(_TEXT, _DOUBLE))

    return build


def count_of_rows(lines: Stream) -> None:
    """Count words with functions of rows."""
    words = lines.flat_map_values(lambda line: line.lower().split()).group_by(lambda key, word: word)
    words.count().to_stream().to("out", Produced.with_(_TEXT, _LONG))


def count_of_arrow(lines: Stream) -> None:
    """Count words with functions on columns."""
    words = lines.flat_map_values(words_of_arrow).group_by(values_as_keys)
    words.count().to_stream().to("out", Produced.with_(_TEXT, _LONG))


def double_of(number: int) -> bytes:
    """Return a number as bytes."""
    return _DOUBLE.serialize("", float(number))


def order_of(number: int) -> bytes:
    """Return an order in JSON."""
    return b'{"article":"article %d","is_paid":%s,"number":%d,"price":%d.25}' % (
        number % 1000,
        b"true" if number % 3 else b"false",
        number,
        number % 100,
    )


def line_of(number: int) -> bytes:
    """Return a line of words out of a thousand."""
    return b" ".join(b"Word%d" % ((number * WORDS + place) * 7919 % 1000) for place in range(WORDS))


_DOUBLES = Consumed.with_(_TEXT, _DOUBLE)

PROGRAMS: Final[Mapping[str, Program]] = {
    "doubles, one function": Program(
        double_of,
        _DOUBLES,
        {"rows": mapped(ten_of_rows), "numpy": mapped(ten_of_numpy), "arrow": mapped(ten_of_arrow)},
    ),
    "doubles, ten functions": Program(
        double_of,
        _DOUBLES,
        {
            "rows": mapped(*[one_of_rows] * STEPS),
            "numpy": mapped(*[one_of_numpy] * STEPS),
            "arrow": mapped(*[one_of_arrow] * STEPS),
        },
    ),
    "orders in JSON": Program(
        order_of,
        Consumed.with_(_TEXT, Serdes.json(Order)),
        {"rows": mapped(total_of_rows), "arrow": mapped(total_of_arrow)},
    ),
    "word count": Program(
        line_of, Consumed.with_(_TEXT, _TEXT), {"rows": count_of_rows, "arrow": count_of_arrow}, caches=True
    ),
    "model": Program(
        double_of, _DOUBLES, {"rows": mapped(score_of_rows), "batches": mapped(score_of_batches)}, slow=True
    ),
}


# ---------------------------------------- the hosts


def rate_of_task(program: Program, form: str, records: int) -> float:
    """Return the records a second of a task alone."""
    family = Family(form, program.build(form), {}, value=program.value)
    clock = time.perf_counter if program.slow else time.process_time
    with tempfile.TemporaryDirectory() as directory:
        tasks = Tasks(family, "memory", Path(directory))
        tasks.run(batches(family, 0, min(records, 20_000)))
        measured = batches(family, records, records)
        begin = clock()
        tasks.run(measured)
        seconds = clock() - begin
        tasks.close()
    return records / seconds


def rate_of_host(program: Program, form: str, records: int, host: str, bootstrap: str) -> float:
    """Return the records a second of an application from topic to topic."""
    builder = StreamsBuilder()
    program.build(form)(builder)
    settings: dict[str, Any] = {"penstock.host": host, "auto.offset.reset": "earliest"}
    if host == "spark":  # several epochs, of which the first is not measured
        settings["penstock.batch.max.bytes"] = max(1024, records * len(program.value(records)) // _EPOCHS)
    with (
        topics(bootstrap, "in", "out"),
        application(builder.build(), bootstrap, APPLICATION, **settings) as streams,
    ):
        producer = ConfluentProducer(client_config(bootstrap))
        for number in range(records):
            key, value = key_of(number), program.value(number)
            producer.send("in", key, value, number % PARTITIONS, _FIRST_TIMESTAMP + number)
        producer.close()
        streams.start()
        if host == "spark":
            window = watch(lambda: records_read(streams), records)
        else:
            admin = ConfluentAdmin(client_config(bootstrap))
            window = _written(admin, records)
            admin.close()
    return window.lines / window.seconds


def _written(admin: ConfluentAdmin, records: int) -> Window:
    """Wait until so many records are in "out"; return the part after the first that were there."""
    partitions = [TopicPartition("out", number) for number in range(PARTITIONS)]
    first: tuple[int, float] | None = None
    begin = time.monotonic()
    while True:
        done, now = sum(admin.end_offsets(partitions).values()), time.monotonic()
        if done >= records:
            before, since = first or (0, begin)
            return Window(done - before, now - since, None, 1)
        if first is None and done:
            first = done, now
        if now > begin + _WAIT_SECONDS:
            raise TimeoutError(f"{done} of {records} records are written after {_WAIT_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


def measured(name: str, host: str, records: int, bootstrap: str) -> list[Result]:
    """Measure all forms of a program on a host."""
    program, found = PROGRAMS[name], list[Result]()
    for form in program.forms:
        print(f"{name}, {host}, {form} ...", file=sys.stderr)
        number = program.records(form, records)
        if host == "task":
            rate = rate_of_task(program, form, number)
        else:
            rate = rate_of_host(program, form, number, host, bootstrap)
        times = rate / found[0].records_per_second if found else 1.0
        found.append(Result(name, host, form, number, rate, times))
        print(f"{rate:,.0f} records/s", file=sys.stderr)
    return found


# ---------------------------------------- the command


def table(results: Sequence[Result]) -> str:
    """Return the results as Markdown."""
    head = "| program | host | form | records/s | times rows |\n|---|---|---|---:|---:|\n"
    return head + "".join(
        f"| {each.program} | {each.host} | {each.form} | {each.records_per_second:,.0f} | {each.times:.1f} |\n"
        for each in results
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the arguments ask for and print it."""
    parser = argparse.ArgumentParser(description="Functions on columns beside functions of rows.")
    parser.add_argument("--records", type=int, default=200_000, help="records of each run")
    parser.add_argument("--only", default="", help="programs, with semicolons between them")
    parser.add_argument("--hosts", default=",".join(HOSTS), help="task, threads, spark, with commas between them")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    names, hosts = options.only.split(";") if options.only else list(PROGRAMS), options.hosts.split(",")
    unknown = [name for name in names if name not in PROGRAMS] + [host for host in hosts if host not in HOSTS]
    if unknown:
        print(f"not known: {', '.join(unknown)}; programs: {'; '.join(PROGRAMS)}; hosts: {', '.join(HOSTS)}",
              file=sys.stderr)  # fmt: skip
        return 2
    prepare_worker()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory:
        if set(hosts) == {"task"}:
            results = [each for name in names for each in measured(name, "task", options.records, "")]
        else:
            with BrokerProcess(Path(directory)) as broker:
                for host in hosts:
                    for name in names:
                        if host == "threads" and PROGRAMS[name].caches:
                            continue  # a cache holds results back, so the output does not show the progress
                        results += measured(name, host, options.records, broker.bootstrap_servers)
    print(json.dumps([asdict(each) for each in results]) if options.json else table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
