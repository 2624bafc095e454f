"""Mistakes of Python programs: each gives an error or a warning with the line of the program, marked here with `#!`.

The programs are texts, so that their lines are their own. What a program shows is its log and its traceback.
"""

from __future__ import annotations

import re

import pytest

from penstock import StreamsBuilder
from penstock.config import StreamsConfig
from penstock.host.deployment.topics import resolve_patterns
from tests.support.programs import GROUPED, marked_line, names_line, shown_by

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
    assert "would come back endlessly" in shown
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
