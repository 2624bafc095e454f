"""Mistakes of Python programs: each gives an error or a warning with the line of the program, marked here with `#!`.

The programs are texts, so that their lines are their own. What a program shows is its log and its traceback.
"""

from __future__ import annotations

import logging
import re
import traceback

import pytest

from penstock import StreamsBuilder
from penstock.config import StreamsConfig
from penstock.host.deployment.topics import resolve_patterns
from penstock.processor.api import SimpleSupplier
from penstock.processor.first_results import watch_results
from penstock.processor.stateless import StreamMapValues
from penstock.record import RecordBatch

_COMMON = """
from datetime import timedelta
from penstock import *
from penstock.testing import TopologyTestDriver
S, J, L = Serdes.string(), Serdes.json(), Serdes.long()
DEFAULTS = {"default.key.serde": S, "default.value.serde": S}
b = StreamsBuilder()
def drive(records=(("k", "v"),), config=DEFAULTS, values=S):
    with TopologyTestDriver(b.build(), config) as driver:
        driver.create_input_topic("in", S, values).pipe_key_value_list(list(records))
        store = driver.get_all_state_stores().get("s")
        return {} if store is None else {key: entry.value for key, entry in store.all()}
"""


def shown_by(program: str, caplog: pytest.LogCaptureFixture) -> str:
    """Return log and traceback of `program`."""
    known = {"__name__": "program"}
    exec(compile(_COMMON, "common.py", "exec"), known)
    shown = ""
    with caplog.at_level(logging.WARNING):
        try:
            exec(compile(program, "program.py", "exec"), known)
        except Exception as error:
            shown = "".join(traceback.format_exception(error))
    return "\n".join([*caplog.messages, shown])


def marked_line(program: str) -> int:
    """Return the number of the line with the mark."""
    return next(number for number, line in enumerate(program.splitlines(), 1) if "#!" in line)


def names_line(shown: str, line: int) -> bool:
    return re.search(rf'program\.py:{line}\b|"program\.py", line {line}\b', shown) is not None


GROUPED = 'b.stream("in").group_by_key()'
TABLE = 'b.table("in", Materialized.as_("t"))'

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
    assert len(warnings) == (2 if "joiner" in warnings[0] else 1)  # each side of a join is a node


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
}


@pytest.mark.parametrize("program", MEANT.values(), ids=MEANT)
def test_none_that_may_be_meant_is_not_named(program: str, caplog: pytest.LogCaptureFixture) -> None:
    function = 'def f(v): return None if v == "last" else v\n'
    records = '[("k", None), ("k", "v"), ("k", "w"), ("k", "last")]'
    assert shown_by(f"{function}{program}\ndrive({records})", caplog) == ""


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


MISTAKES = {
    "a generator as mapper": (
        """
def words(v):
    yield from v.split()
b.stream("in").map_values(words) #!""",
        "flat_map_values",
    ),
    "a generator as action": (
        'b.stream("in").foreach((yield_ := type("A", (), {"__call__": f})()).__call__) #!',
        "yield",
    ),
    "an object with an asynchronous call": (
        """
class Call:
    async def __call__(self, v): return v
b.stream("in").map_values(Call()) #!""",
        "async def",
    ),
    "a loop over a stream": ('for record in b.stream("in"): pass #!', "foreach"),
    "a stream as a condition": ('if b.stream("in"): pass #!', "filter"),
    "a table as a condition": ('if b.table("in"): pass #!', "filter"),
    "a column of a stream": ('b.stream("in")["x"] #!', 'value["field"]'),
    "to() of a table": ('b.table("in").to("out") #!', "to_stream().to(...)"),
    "count() of a stream": ('b.stream("in").count() #!', "group_by_key().count()"),
    "mapValues": ('b.stream("in").mapValues(str.upper) #!', "map_values"),
    "groupByKey of a table": ('b.table("in").groupByKey() #!', "to_stream().group_by_key(...)"),
    "addStateStore": ('b.addStateStore("s") #!', "add_state_store"),
    "a serde that is not called": ('b.stream("in", Consumed.with_(Serdes.string, S)) #!', "Serdes.string()"),
    "swapped arguments": (
        f"{GROUPED}.aggregate(lambda: 0, lambda total, v: total) #!",
        "aggregator(key, value, aggregate)",
    ),
    "the characters of a text": ('b.stream("in").flat_map_values(lambda v: v).to("out") #!\ndrive()', "text.split()"),
    "a text as a pair": ('b.stream("in").map(lambda k, v: "ab").to("out") #!\ndrive()', "(key, value)"),
    "a dict as a pair": ('b.stream("in").map(lambda k, v: {1: 2, 3: 4}).to("out") #!\ndrive()', "(key, value)"),
    "a dict of pairs": ('b.stream("in").flat_map(lambda k, v: {"ab": 2}).to("out") #!\ndrive()', "(key, value)"),
    "topics in one text": ('b.stream("in, in2") #!', "several topics go in a list, ['in', 'in2']"),
    "tables of an illegal topic": ('b.table("in/eu") #!', "'in/eu' cannot be the name of a topic"),
    "a sink of an illegal topic": ('b.stream("in").to("orders/eu all") #!\nb.build()', "'orders/eu all' cannot be"),
    "a dynamic topic": ('b.stream("in").to(lambda k, v, m: "a b") #!\ndrive()', "returned 'a b' for the input record"),
    "a store that no topic can be called after": (
        """
class P(Processor):
    def process(self, record): pass
builder = Topology().add_source("source", "in").add_processor("P", P, "source")
builder.add_state_store(Stores.key_value_store_builder(Stores.in_memory_key_value_store("s t"), S, S), "P")
TopologyTestDriver(builder, DEFAULTS) #!""",
        "'topology-test-driver-s t-changelog' cannot be",
    ),
    "an illegal application id": (
        'drive(config={**DEFAULTS, "application.id": "my app: v1"}) #!',
        "application.id: it has",
    ),
    "a window store as another": (
        f"""
{GROUPED}.windowed_by(TimeWindows.of_size_with_no_grace(10)).count(Materialized.as_("s"))
with TopologyTestDriver(b.build(), DEFAULTS) as driver:
    driver.get_key_value_store("s") #!""",
        "get_timestamped_window_store()",
    ),
    "a store that is not connected": (
        """
class P(Processor):
    def init(self, context):
        context.get_state_store("s") #!
    def process(self, record): pass
b.add_state_store(Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), S, S))
b.stream("in").process(P)
drive()""",
        "add_state_store",
    ),
    "init without super": (
        """
class P(Processor):
    def init(self, context): pass
    def process(self, record): self.context.forward(record) #!
b.stream("in").process(P)
drive()""",
        "P.init must call super().init(context)",
    ),
    "a test topic whose serde is not called": (
        """
b.stream("in")
with TopologyTestDriver(b.build(), DEFAULTS) as driver:
    driver.create_input_topic("in", Serdes.string, S) #!""",
        "Serdes.string()",
    ),
    "a serde by its name": ('b.stream("in", Consumed.with_("string", S)) #!', "Serdes.string()"),
    "configuration before topology": ("KafkaStreams(DEFAULTS, b.build()) #!", "KafkaStreams(topology, config)"),
    "topology as configuration of a test": (
        'b.stream("in")\nTopologyTestDriver(b.build(), b.build()) #!',
        "Expected a dict or a StreamsConfig as configuration",
    ),
    "brokers as a list": (
        'KafkaStreams(b.build(), {"application.id": "a", "bootstrap.servers": ["one:9092", "two:9092"]}) #!',
        "'one:9092,two:9092'",
    ),
    "a text as a length of time": ('TimeWindows.of_size_with_no_grace("5 minutes") #!', "timedelta(minutes=5)"),
    "float seconds as a length of time": ("TimeWindows.of_size_with_no_grace(1.5) #!", "timedelta(seconds=1.5)"),
    "windows for a table": (
        """
within = JoinWindows.of_time_difference_with_no_grace(10)
b.stream("in").join(b.table("in2"), lambda one, other: one, within) #!""",
        "the other side is a KTable: leave them out",
    ),
    "a topic as a side of a join": (
        'b.stream("in").join("in2", lambda one, other: one) #!',
        "builder.table('in2')",
    ),
    "branch() of a stream": ('b.stream("in").branch(lambda k, v: True) #!', "split().branch(predicate)"),
    "branches as a list": (
        'one, other = b.stream("in").split().branch(lambda k, v: True) #!',
        "default_branch() and no_default_branch() return the branches",
    ),
    "a supplier of stores as their builder": (
        'b.add_state_store(Stores.in_memory_key_value_store("s")) #!',
        "Stores.key_value_store_builder(supplier, key_serde, value_serde)",
    ),
    "a function as processor": ('b.stream("in").process(lambda record: record) #!', "write a subclass of Processor"),
    "process of key and value": (
        """
class P(Processor):
    def process(self, key, value): pass
b.stream("in").process(P) #!""",
        "P must define process(self, record): P.process(key, value) does not fit",
    ),
    "a generator as process": (
        """
class P(Processor):
    def process(self, record): yield record
b.stream("in").process(P) #!""",
        "in place of `yield`",
    ),
    "a clock by its name": (
        """
class P(Processor):
    def init(self, context):
        context.schedule(timedelta(seconds=1), "wall_clock_time", print) #!
    def process(self, record): pass
b.stream("in").process(P)
drive()""",
        "Expected PunctuationType.STREAM_TIME or PunctuationType.WALL_CLOCK_TIME",
    ),
    "a punctuator without the time": (
        """
class P(Processor):
    def init(self, context):
        context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, self.tick) #!
    def tick(self): pass
    def process(self, record): pass
b.stream("in").process(P)
drive()""",
        "punctuator(time_ms)",
    ),
}


@pytest.mark.parametrize(("program", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_its_line(program: str, says: str, caplog: pytest.LogCaptureFixture) -> None:
    shown = shown_by(f"def f(self, k, v):\n    yield v\n{program}", caplog)
    assert names_line(shown, marked_line(program) + 2), shown
    assert says in shown


def test_a_name_of_java_has_one_suggestion(caplog: pytest.LogCaptureFixture) -> None:
    shown = shown_by('b.stream("in").mapValues(str.upper)', caplog)
    assert shown.endswith("AttributeError: KStream has no mapValues: write map_values.\n")


MISREAD = """
b.stream("in", Consumed.with_(S, {read})).map_values(lambda v: 7).to("out", Produced.with_(S, {written}))
with TopologyTestDriver(b.build()) as driver:
    driver.create_input_topic("in", S, {piped})
    driver.create_output_topic("out", S, {tested}) #!
"""


def test_a_test_that_reads_numbers_as_texts_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    program = MISREAD.format(read="S", written="L", piped="S", tested="S")
    shown = shown_by(program, caplog)
    assert names_line(shown, marked_line(program)), shown
    assert "StringSerde for the values of topic out" in shown
    assert "uses LongSerde" in shown
    piped = shown_by(MISREAD.format(read="Serdes.double()", written="L", piped="L", tested="L"), caplog)
    assert "LongSerde for the values of topic in" in piped


@pytest.mark.parametrize("tested", ["S", "Serdes.bytes()"])
def test_a_test_may_read_json_as_text_and_all_as_bytes(tested: str, caplog: pytest.LogCaptureFixture) -> None:
    assert shown_by(MISREAD.format(read="J", written="J", piped="S", tested=tested), caplog) == ""


def test_the_flat_operators_take_generators(caplog: pytest.LogCaptureFixture) -> None:
    program = """
def words(v):
    yield from v.split()
def pairs(k, v):
    yield v, k
b.stream("in").flat_map_values(words).flat_map(pairs).group_by_key().count(Materialized.as_("s"))
counts = drive([("k", "a b a")])
assert counts == {"a": 2, "b": 1}
"""
    assert shown_by(program, caplog) == ""


OWN_DEAD_LETTERS = """
import re
from penstock.exception_handlers import LogAndContinueProcessingExceptionHandler
b = StreamsBuilder()
config = {**DEFAULTS, "errors.dead.letter.queue.topic.name": "orders-dlq",
          "processing.exception.handler": LogAndContinueProcessingExceptionHandler}
stream = b.stream(READ) #!
stream.map_values(int).to("out", Produced.with_(S, L))
with TopologyTestDriver(b.build(), {**config, **MORE}) as driver:
    driver.create_input_topic("orders-eu", S, S).pipe_input("k", "no number")
    print(driver.queue_size("orders-dlq"))
"""


def test_a_pattern_leaves_out_the_dead_letters_of_its_own(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    program = OWN_DEAD_LETTERS.replace("READ", 're.compile("orders-.*")').replace("MORE", "{}")
    shown = shown_by(program, caplog)
    assert names_line(shown, marked_line(program)), shown
    assert "penstock.read.dead.letters=true" in shown
    assert capsys.readouterr().out == "1\n"


def test_a_source_of_the_dead_letters_of_its_own_is_refused_unless_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    program = OWN_DEAD_LETTERS.replace("READ", '["orders-eu", "orders-dlq"]').replace(
        "map_values(int)", "map_values(len)"
    )
    shown = shown_by(program.replace("MORE", "{}"), caplog)
    assert names_line(shown, marked_line(program)), shown
    assert "would come back for ever" in shown
    caplog.clear()
    assert shown_by(program.replace("MORE", '{"penstock.read.dead.letters": "true"}'), caplog) == ""


def test_the_dead_letters_of_the_application_match_no_pattern_of_it() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("orders-.*"))
    built = builder.build().build("app")
    topics = {"orders-eu": 1, "orders-dlq": 1}
    config = {"errors.dead.letter.queue.topic.name": "orders-dlq"}
    resolved = resolve_patterns(built, topics, frozenset(), StreamsConfig(config))
    assert resolved.subtopologies[0].source_topics == ("orders-eu",)
    asked = StreamsConfig({**config, "penstock.read.dead.letters": True})
    assert resolve_patterns(built, topics, frozenset(), asked).subtopologies[0].source_topics == tuple(sorted(topics))
