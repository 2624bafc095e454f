"""Functions whose first results show a mistake: one warning with the line of the program, marked here with `#!`."""

from __future__ import annotations

import pytest

from penstock.processor.api import SimpleSupplier
from penstock.processor.first_results import watch_results
from penstock.processor.stateless import StreamMapValues
from penstock.record import RecordBatch
from tests.support.programs import GROUPED, TABLE, marked_line, names_line, shown_by

NONE_RESULTS = {
    "aggregator": f"{GROUPED}.aggregate(list, lambda k, v, a: a.append(v), Materialized.with_(S, J)) #!",
    "aggregator in windows": f"""
windowed = {GROUPED}.windowed_by(TimeWindows.of_size_with_no_grace(10))
windowed.aggregate(list, lambda k, v, a: a.append(v), Materialized.with_(S, J)) #!""",
    "aggregator in sliding windows": f"""
windowed = {GROUPED}.windowed_by(SlidingWindows.of_time_difference_with_no_grace(10))
windowed.aggregate(list, lambda k, v, a: a.append(v), Materialized.with_(S, J)) #!""",
    "aggregator of a cogroup": f"""
cogrouped = {GROUPED}.cogroup(lambda k, v, a: a.append(v))
cogrouped.aggregate(list, Materialized.with_(S, J)) #!""",
    "merger": f"""
def add(k, v, a): return [*a, v]
windowed = {GROUPED}.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
windowed.aggregate(list, add, lambda k, one, other: one.extend(other), Materialized.with_(S, J)) #!""",
    "reducer": f"""
def longest(a, v): #!
    max(a, v)
{GROUPED}.reduce(longest)""",
    "reducer in windows": f"""
def longest(a, v): #!
    max(a, v)
{GROUPED}.windowed_by(TimeWindows.of_size_with_no_grace(10)).reduce(longest)""",
    "adder": f"""
def add(k, v, a): #!
    a[v] = k
grouped = {TABLE}.group_by(lambda k, v: (k, v))
grouped.aggregate(dict, add, lambda k, v, a: a, Materialized.with_(S, J))""",
    "subtractor": f"""
def add(k, v, a): return [*a, v]
grouped = {TABLE}.group_by(lambda k, v: ("all", v))
grouped.aggregate(list, add, lambda k, v, a: a.remove(v), Materialized.with_(S, J)) #!""",
    "mapper": 'b.stream("in").map_values(print).to("out") #!',
    "mapper with key": 'b.stream("in").map_values(lambda k, v: print(k, v)).to("out") #!',
    "mapper of a table": f'{TABLE}.map_values(lambda v: print(v)).to_stream().to("out") #!',
    "mapper of a group": f"{TABLE}.group_by(lambda k, v: print(k, v)).count() #!",
    "key selector": 'b.stream("in").select_key(lambda k, v: print(v)).to("out") #!',
    "mapper with calls": """
async def risk(v): #!
    v.upper()
b.stream("in").map_values(risk, calls=Calls()).to("out")""",
    "key selector with calls": """
def customer(k, v): #!
    v.upper()
b.stream("in").select_key(customer, calls=Calls(threads=1)).to("out")""",
    "predicate with calls": """
async def is_long(k, v): #!
    len(v) > 3
b.stream("in").filter(is_long, calls=Calls()).to("out")""",
    "joiner": """
table = b.table("in")
b.stream("in2")
table.join(table.map_values(lambda v: v), lambda one, other: print(one)).to_stream().to("out") #!""",
    "joiner of a stream and itself": """
stream, windows = b.stream("in"), JoinWindows.of_time_difference_with_no_grace(10)
stream.join(stream, lambda one, other: print(one), windows).to("out") #!""",
    "predicate": """
def is_long(k, v): #!
    len(v) > 3
b.stream("in").filter(is_long).to("out")""",
    "predicate of a table": f"""
def is_long(k, v): #!
    len(v) > 3
{TABLE}.filter(is_long)""",
    "predicate of a branch": """
def is_long(k, v): #!
    len(v) > 3
b.stream("in").split().branch(lambda k, v: False).branch(is_long).no_default_branch()""",
}


@pytest.mark.parametrize("program", NONE_RESULTS.values(), ids=NONE_RESULTS)
def test_a_function_that_forgets_its_value_is_named_once(program: str, caplog: pytest.LogCaptureFixture) -> None:
    shown_by(f'{program}\ndrive([("k", str(n)) for n in range(3)])', caplog)
    warnings = [message for message in caplog.messages if "penstock.warn.none.results" in message]
    assert warnings
    assert all(names_line(warning, marked_line(program)) for warning in warnings), warnings
    # each side of a join of tables is a node that calls; two streams are joined in one call for both sides
    assert len(warnings) == (2 if "KTABLE-JOIN" in warnings[0] else 1)


SHARED = """
empty = []
def add(k, v, a):
    a.append(v)
    return a
"""


SHARED_AGGREGATES = {
    "initializer": f"{GROUPED}.aggregate(lambda: empty, add, Materialized.with_(S, J)) #!",
    "initializer in windows": f"""
windowed = {GROUPED}.windowed_by(TimeWindows.of_size_with_no_grace(10))
windowed.aggregate(lambda: empty, add, Materialized.with_(S, J)) #!""",
    "initializer in sessions": f"""
windowed = {GROUPED}.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(10))
windowed.aggregate(lambda: empty, add, lambda k, one, other: one + other, Materialized.with_(S, J)) #!""",
    "initializer of a group": f"""
grouped = {TABLE}.group_by(lambda k, v: (k, v))
grouped.aggregate(lambda: empty, add, add, Materialized.with_(S, J)) #!""",
    "initializer of a cogroup": f"{GROUPED}.cogroup(add).aggregate(lambda: empty, Materialized.with_(S, J)) #!",
}


@pytest.mark.parametrize("program", SHARED_AGGREGATES.values(), ids=SHARED_AGGREGATES)
def test_one_aggregate_for_all_keys_is_named_once(program: str, caplog: pytest.LogCaptureFixture) -> None:
    program = f"{SHARED}{program}\ndrive([(str(n), 'v') for n in range(4)])"
    shown_by(program, caplog)
    (warning,) = caplog.messages
    assert "returns the same list each time" in warning
    assert names_line(warning, marked_line(program)), warning


def test_one_aggregate_that_stays_as_it_is_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    program = f"empty = []\n{GROUPED}.aggregate(lambda: empty, lambda k, v, a: [*a, v], Materialized.with_(S, J))"
    assert shown_by(f"{program}\ndrive([(str(n), 'v') for n in range(4)])", caplog) == ""


@pytest.mark.parametrize(("kind", "operator"), [("Processor", "process"), ("FixedKeyProcessor", "process_values")])
def test_a_record_that_is_returned_and_not_forwarded_is_named_once(
    kind: str, operator: str, caplog: pytest.LogCaptureFixture
) -> None:
    program = f"""
class P({kind}):
    def process(self, record): #!
        return record.with_value("w") if record.value == "v" else None
b.stream("in").{operator}(P).to("out")
drive([("k", "u"), ("k", "v"), ("k", "v")])"""
    shown_by(program, caplog)
    (warning,) = caplog.messages
    assert "self.context.forward(record)" in warning
    assert names_line(warning, marked_line(program)), warning


@pytest.mark.parametrize(("kind", "operator"), [("Processor", "process"), ("FixedKeyProcessor", "process_values")])
def test_a_record_that_a_processor_with_calls_returns_is_named(
    kind: str, operator: str, caplog: pytest.LogCaptureFixture
) -> None:
    program = f"""
from penstock import Calls
async def asked(value): return value
class P({kind}):
    def process(self, record): #!
        return record
    def answered(self, record, answer):
        self.context.forward(record)
b.stream("in").{operator}(P, calls=Calls(), call_functions=(asked,)).to("out")
drive([("k", "v")])"""
    shown_by(program, caplog)
    (warning,) = caplog.messages
    assert names_line(warning, marked_line(program)), warning


def test_a_processor_that_forwards_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    program = """
class P(Processor):
    def process(self, record):
        return self.context.forward(record)
b.stream("in").process(P).group_by_key().count(Materialized.as_("s"))
assert drive([("k", "v")] * 200) == {"k": 200}"""
    assert shown_by(program, caplog) == ""


MEANT = {
    "None after a value": f"{GROUPED}.reduce(lambda a, v: f(v))",
    "None of None": 'b.stream("in").map_values(lambda v: v and f(v)).to("out")',
    "an expression that says None": 'b.stream("in").map_values(lambda v: None).to("out")',
    "a predicate whose truth is None": 'b.stream("in").filter(lambda k, v: {}.get(v)).to("out")',
    "a joiner without the other side": """
b.stream("in").left_join(b.table("other"), lambda one, other: other).to("out")""",
    "a ready aggregation whose last value is subtracted": f"""
from penstock import aggregations
{TABLE}.group_by(lambda k, v: ("all", v)).aggregate(aggregations.mean(of=len))""",
}


@pytest.mark.parametrize("program", MEANT.values(), ids=MEANT)
def test_none_that_may_be_meant_is_not_named(program: str, caplog: pytest.LogCaptureFixture) -> None:
    function = 'def f(v): return None if v == "last" else v\n'
    records = '[("k", None), ("k", "v"), ("k", "w"), ("k", "last")]'
    assert shown_by(f"{function}{program}\ndrive({records})", caplog) == ""


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("map", "a pair (key, value)"),
        ("flat_map", "a list of pairs (key, value)"),
        ("flat_map_values", "a list of values"),
    ],
)
def test_a_called_function_that_forgets_a_needed_value_is_an_error_with_its_line(
    method: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    program = f"""
async def split(*record): #!
    record[-1].split()
b.stream("in").{method}(split, named="split-orders", calls=Calls()).to("out")
drive()"""
    shown = shown_by(program, caplog)
    line = f"program.py:{marked_line(program)}"
    assert f"The mapper split ({line}) of split-orders returned None where {expected} was expected." in shown


@pytest.mark.parametrize(
    "program",
    [
        """
async def found(v):
    return v if v == "2" else None
b.stream("in").map_values(found, calls=Calls()).to("out")
drive([("k", str(n)) for n in (2, 1, 2)])""",
        """
@vectorized
async def found(values: list[str]):
    return [None for _ in values]
b.stream("in").map_values(found, calls=Calls()).to("out")
drive()""",
        """
async def told(k, v):
    v.upper()
b.stream("in").peek(told, calls=Calls()).foreach(told, calls=Calls())
drive()""",
    ],
    ids=["after a value", "columns", "actions"],
)
def test_called_functions_whose_none_is_no_mistake_cause_no_warning(
    program: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert shown_by(program, caplog) == ""


def test_columns_are_watched_until_the_first_value(caplog: pytest.LogCaptureFixture) -> None:
    results = [None, None, "v"]
    processor = StreamMapValues(lambda value: results[value], with_key=False)
    supplier = SimpleSupplier(lambda: processor)
    watch_results(processor, supplier, "M")
    watched = vars(processor)["_mapper"]
    batch = RecordBatch.of([("k", n, 0, n, ()) for n in range(3)])
    mapped, _ = processor.process_batch(batch, lambda row, error: pytest.fail(str(error)))
    assert list(mapped.values) == results
    assert len(caplog.messages) == 1
    assert vars(processor)["_mapper"] is not watched
    watch_results(processor, supplier, "M")
    assert vars(processor)["_mapper"](0) is None
    assert len(caplog.messages) == 1


def test_warnings_of_none_can_be_turned_off(caplog: pytest.LogCaptureFixture) -> None:
    program = NONE_RESULTS["aggregator"]
    assert shown_by(f'{program}\ndrive(config={{**DEFAULTS, "penstock.warn.none.results": False}})', caplog) == ""
