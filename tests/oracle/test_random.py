"""Random small topologies with random input: both executions, and input cut into batches of any sizes, give the same.

The same means byte-equal output in the order of sending across topics, byte-equal changes of every store, an equal
checkpoint and equal counts of dropped records; caches are off, or never full. Topologies are made of the operations of
conformance cases. A cut run follows the order in which the first run took its records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock import StreamsBuilder, StreamsConfig
from penstock.errors import StreamsError
from penstock.plan.subtopology import BuiltTopology, SubtopologySpec, TaskId
from penstock.record import RecordBatch
from penstock.state.memory import MemoryBase
from penstock.task.record_collector import SentRecord
from penstock.task.stream_task import StreamTask, TaskCommit
from tests.oracle.interpreter import case_runner
from tests.oracle.interpreter.operations import DslInterpreter
from tests.oracle.interpreter.settings import APPLICATION_ID, configuration
from tests.oracle.interpreter.values import headers_from_json

Entry = dict[str, Any]
TOPICS = ("in1", "in2")

# ---------------------------------------- what is drawn

TEXT_FILTERS = [["value_contains", "x"], "value_not_null", "key_not_null", ["key_is", "a"], ["value_shorter_than", 3]]
NUMBER_FILTERS = ["value_even", ["value_below", 3], "value_not_null"]
TEXT_MAPPERS = [["append", "!"], "upper", ["null_if_contains", "z"], "identity", ["null_if", "x"]]
KEY_SELECTORS = ["first_character", "value", ["append", "'"], ["null_if_value_contains", "z"], ["constant", "k"]]
PAIR_MAPPERS = ["swap", "key_by_first_character", ["append_both", "1"], "value_twice", "same"]
FLAT_PAIR_MAPPERS = ["words_as_keys", "twice", "none", "both_ways"]
FLAT_VALUE_MAPPERS = ["words", "twice", "characters", "none", "key_then_value"]
PROCESSORS: list[Any] = ["pass", "twice", "drop", ["append", "?"], "metadata", "times", ["stamp", 3, "h", "1"], "swap"]
FIXED_KEY_PROCESSORS: list[Any] = ["pass", "twice", "drop", ["append", "?"], ["stamp", 3, "h", "1"]]
PUNCTUATED: list[Any] = [["punctuate_marker", "tick", "stream_time", 7], ["schedule_cancel", "stream_time", 5, 2]]
REDUCERS = ["concat", "latest", "first", "longer", ["null_if", "x"]]
AGGREGATORS = ["append", "append_with_key", "latest", ["null_if", "y"]]
SERDES = [None, None, "string", "header_string", "marked_string"]
JOIN_WINDOWS = [{"difference": 0}, {"difference": 4, "grace": 6}, {"difference": 8, "grace": 0, "before": 2}]
JOINERS = ["plus", "pair", "key_pair", ["null_if_left", "x"]]
WINDOWS: list[dict[str, Any]] = [
    {"kind": "time", "size": 10},
    {"kind": "time", "size": 10, "advance": 4, "grace": 7},
    {"kind": "time", "size": 5, "grace": 30},
    {"kind": "sliding", "difference": 6, "grace": 5},
    {"kind": "session", "gap": 4},
    {"kind": "session", "gap": 3, "grace": 9},
    {"kind": "unlimited", "start": 5},
]


@dataclass
class Stream:
    """A stream of the topology under construction; number: whether its values are numbers."""

    id: str
    number: bool = False


class Drawn:
    """A topology of operations, drawn step by step."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.entries: list[Entry] = []
        self.streams = [Stream(self.add("stream", topic=topic, **self.serdes("consumed"))) for topic in TOPICS]

    def one(self, choices: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(choices))

    def add(self, op: str, **fields: Any) -> str:
        id = f"{op}{len(self.entries)}"
        self.entries.append({"op": op, "id": id, **fields})
        return id

    def serdes(self, option: str, **others: Any) -> Entry:
        """Return the option with a serde for texts as keys and one for values, which may show what they are given; no
        option where both are the defaults."""
        drawn = {name: self.one(SERDES) for name in ("key_serde", "value_serde")}
        fields = {**others, **{name: serde for name, serde in drawn.items() if serde is not None}}
        return {option: fields} if fields else {}

    def grow(self) -> None:
        """Add one operation to one of the streams."""
        parent: Stream = self.one(self.streams)
        if parent.number:
            self.streams.append(self.one([self.number_filter, self.to_text])(parent))
        elif self.one([False, False, False, True]):
            self.streams += self.split(parent)
        else:
            steps = [self.stateless, self.stateless, self.merge, self.process, self.aggregate, self.table, self.join]
            self.streams.append(self.one([*steps, self.repartition])(parent))

    def split(self, parent: Stream) -> list[Stream]:
        """Make up to two branches and a default one."""
        name = f"split{len(self.entries)}"
        branches = [{"predicate": self.one(TEXT_FILTERS)} for _ in range(self._draw(st.integers(1, 2)))]
        self.add("split", **{"from": parent.id}, named=f"{name}-", branches=branches, default={})
        return [Stream(f"{name}:{name}-{number}") for number in range(len(branches) + 1)]

    def repartition(self, parent: Stream) -> Stream:
        option = self.serdes("repartitioned", name=f"again{len(self.entries)}")
        return Stream(self.add("repartition", **{"from": parent.id}, **option))

    def join(self, parent: Stream) -> Stream:
        """Join a stream with another one, or with the table of another one."""
        other: Stream = self.one([stream for stream in self.streams if not stream.number])
        # a join of joins may have millions of results
        joined_before = any("stream_joined" in entry for entry in self.entries)
        kind = self.one(["table", "versioned", "tables", *([] if joined_before else ["stream"])])
        fields: Entry = {"left": parent.id, "right": other.id, "joiner": self.one(JOINERS)}
        if kind == "stream":
            serde = self.one(SERDES)
            value_serdes = {} if serde is None else {"value_serde": serde, "other_value_serde": serde}
            fields["stream_joined"] = {"name": f"joined{len(self.entries)}", **value_serdes}
            op = self.one(["join", "left_join", "outer_join"])
            return Stream(self.add(op, **fields, windows=self.one(JOIN_WINDOWS)))
        if kind == "tables":
            left, right = (self.add("to_table", **{"from": each.id}, **self.materialized()) for each in (parent, other))
            op = self.one(["join", "left_join", "outer_join"])
            joined = self.add(op, left=left, right=right, joiner=fields["joiner"], **self.materialized())
            return Stream(self.add("to_stream", **{"from": joined}))
        if kind == "versioned":
            store = {"kind": "versioned", "name": f"table{len(self.entries)}", "history": 100}
            fields["right"] = self.add("to_table", **{"from": other.id}, **self.serdes("materialized", store=store))
            # the buffer of stream records refuses null keys
            fields["left"] = self.add("filter", **{"from": parent.id}, predicate="key_not_null")
            name = f"joined{len(self.entries)}"
            fields["joined"] = {"name": name, **self.one([{}, {"grace": 0}, {"grace": 5}])}
        else:
            fields["right"] = self.add("to_table", **{"from": other.id}, **self.materialized())
        return Stream(self.add(self.one(["join", "left_join"]), **fields))

    def number_filter(self, parent: Stream) -> Stream:
        op = self.one(["filter", "filter_not"])
        return Stream(self.add(op, **{"from": parent.id}, predicate=self.one(NUMBER_FILTERS)), number=True)

    def to_text(self, parent: Stream) -> Stream:
        return Stream(self.add("map_values", **{"from": parent.id}, mapper="to_text"))

    def stateless(self, parent: Stream) -> Stream:
        op, field, choices = self.one(
            [
                ("filter", "predicate", TEXT_FILTERS),
                ("filter_not", "predicate", TEXT_FILTERS),
                ("map_values", "mapper", TEXT_MAPPERS),
                ("map_values", "mapper", ["length"]),
                ("flat_map_values", "mapper", FLAT_VALUE_MAPPERS),
                ("select_key", "mapper", KEY_SELECTORS),
                ("map", "mapper", PAIR_MAPPERS),
                ("flat_map", "mapper", FLAT_PAIR_MAPPERS),
                ("peek", "", []),
            ]
        )
        fields: Entry = {field: self.one(choices)} if field else {}
        with_key: Entry = {"with_key": True} if op == "flat_map_values" else {}
        id = self.add(op, **{"from": parent.id}, **fields, **with_key)
        return Stream(id, number=fields.get("mapper") == "length")

    def merge(self, parent: Stream) -> Stream:
        other = self.one([stream for stream in self.streams if stream.number == parent.number])
        return Stream(self.add("merge", left=parent.id, right=other.id))

    def process(self, parent: Stream) -> Stream:
        kind = self.one(["plain", "punctuated", "fixed_key", "dedupe", "count", "flush"])
        if kind == "fixed_key":
            return Stream(self.add("process_values", **{"from": parent.id}, processor=self.one(FIXED_KEY_PROCESSORS)))
        if kind in ("plain", "punctuated"):
            processor = self.one(PROCESSORS if kind == "plain" else PUNCTUATED)
            return Stream(self.add("process", **{"from": parent.id}, processor=processor))
        store = f"store{len(self.entries)}"
        spec = {"kind": "key_value", "name": store, "key_serde": "string", "caching": self.one([True, False])}
        text = self.one(["string", "header_string", "marked_string"])
        self.add("add_state_store", store={**spec, "value_serde": "long" if kind == "count" else text})
        processor = {
            "dedupe": ["dedupe", store],
            "count": ["running_count", store],
            "flush": ["flush_store", store, "stream_time", 6],
        }[kind]
        op = self.one(["process", "process_values"]) if kind == "count" else "process"
        id = self.add(op, **{"from": parent.id}, processor=processor, stores=[store])
        return Stream(id, number=kind == "count")

    def aggregate(self, parent: Stream) -> Stream:
        if self.one([True, False]):
            grouped = self.add("group_by_key", **{"from": parent.id}, **self.serdes("grouped"))
        else:
            mapper = self.one(KEY_SELECTORS)
            grouped = self.add("group_by", **{"from": parent.id}, mapper=mapper, **self.serdes("grouped"))
        windows = self.one([None, *WINDOWS])
        if windows is not None:
            grouped = self.windowed(grouped, windows)
        op = self.one(["count", "reduce", "aggregate"])
        fields: Entry = {}
        if op == "reduce":
            fields = {"reducer": self.one(REDUCERS)}
        if op == "aggregate":
            fields = {"initializer": self.one(["empty", ["text", "s"]]), "aggregator": self.one(AGGREGATORS)}
            if windows is not None and windows["kind"] == "session":
                fields["merger"] = "concat"
        materialized = {"name": f"table{len(self.entries)}", "caching": self.one([True, False])}
        serde = self.one(SERDES)
        if op != "count" and serde is not None:
            materialized["value_serde"] = serde
        table = self.add(op, **{"from": grouped}, **fields, materialized=materialized)
        mapper: Entry = {} if windows is None else {"mapper": "key_text"}
        return Stream(self.add("to_stream", **{"from": table}, **mapper), number=op == "count")

    def windowed(self, grouped: str, windows: Entry) -> str:
        id = self.add("windowed_by", **{"from": grouped}, windows=windows)
        strategy = self.one(["on_window_update", "on_window_close"])
        if windows["kind"] == "unlimited" or strategy == "on_window_update":
            return id
        return self.add("emit_strategy", **{"from": id}, strategy=strategy)

    def table(self, parent: Stream) -> Stream:
        """Make a table of a stream, with up to three operators on it, and a stream again."""
        id = self.add("to_table", **{"from": parent.id}, **self.materialized())
        for _ in range(self._draw(st.integers(0, 3))):
            op = self.one(["filter", "filter_not", "map_values", "transform_values", "suppress", "group_by"])
            if op == "suppress":
                buffer = self.one([{}, {"max_records": 2}])
                limit = {"until": "time_limit", "ms": self.one([0, 5, 20]), "buffer": buffer}
                id = self.add(op, **{"from": id}, suppressed=limit)
            elif op == "group_by":
                id = self.add(op, **{"from": id}, mapper=self.one(["key_by_first_character", ["null_key_if", "z"]]))
                functions = {"initializer": ["text", "s"], "adder": "append", "subtractor": "append_minus"}
                id = self.add("aggregate", **{"from": id}, **functions, **self.materialized())
            else:
                field, choices = {
                    "map_values": ("mapper", TEXT_MAPPERS),
                    "transform_values": ("transformer", ["key_and_value", ["null_if_contains", "z"]]),
                }.get(op, ("predicate", TEXT_FILTERS))
                id = self.add(op, **{"from": id}, **{field: self.one(choices)}, **self.materialized())
        return Stream(self.add("to_stream", **{"from": id}))

    def materialized(self) -> Entry:
        """Return the option of a store that the user named, or none."""
        if self.one([True, False]):
            return {}
        named = {"name": f"table{len(self.entries)}", "caching": self.one([True, False])}
        return self.serdes("materialized", **named)

    def finish(self) -> None:
        """Send every stream to its own topic."""
        for number, stream in enumerate(self.streams):
            produced = {"produced": {"key_serde": "string", "value_serde": "long"}}
            if not stream.number:
                produced = self.serdes("produced")
            self.add("to", **{"from": stream.id}, topic=f"out{number}", **produced)


@st.composite
def topologies(draw: st.DrawFn) -> list[Entry]:
    drawn = Drawn(draw)
    for _ in range(draw(st.integers(1, 6))):
        drawn.grow()
    drawn.finish()
    return drawn.entries


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from(["x", "y", "xy z", "zz", "", None, "x y x"]),
        st.integers(0, 40),
        st.sampled_from([[], [], [["h", "1"]], [["n", None]]]),
    ),
    max_size=25,
)

# ---------------------------------------- how it is run


@dataclass(frozen=True)
class Outcome:
    """What came out of one task."""

    sent: list[SentRecord]
    changes: Mapping[str, Mapping[bytes, bytes | None]]
    checkpoint: bytes
    dropped: Mapping[str, int]


def built(entries: list[Entry]) -> BuiltTopology:
    builder = StreamsBuilder()
    interpreter = DslInterpreter(builder)
    for entry in entries:
        interpreter.apply(entry)
    return builder.build().build(APPLICATION_ID)


def upstream_first(topology: BuiltTopology) -> list[SubtopologySpec]:
    """Return the sub-topologies so that each stands behind those whose topics it reads; discards loops."""
    waiting = list(topology.subtopologies)
    ordered: list[SubtopologySpec] = []
    while waiting:
        written = {topic for part in waiting for topic in part.sink_topics}
        ready = [part for part in waiting if not written & set(part.source_topics)]
        assume(ready)
        ordered += ready
        waiting = [part for part in waiting if part not in ready]
    return ordered


def config(execution: str, cache_bytes: int) -> StreamsConfig:
    case = {
        "config": {
            "default.key.serde": "string",
            "default.value.serde": "string",
            "statestore.cache.max.bytes": cache_bytes,
        }
    }
    return StreamsConfig({**configuration(case, execution), "penstock.trace.order": "unused"}, environment={})


class OneEach(dict[str, int]):
    """One partition for every topic."""

    def __missing__(self, topic: str) -> int:
        return 1


class ThreeEach(OneEach):
    """Three partitions for every topic that is written."""

    def __missing__(self, topic: str) -> int:
        return 3


Chunk = tuple[str, int, int]
"""Topic, and the rows from which to before which."""


def run(
    part: SubtopologySpec, settings: StreamsConfig, topics: Mapping[str, RecordBatch], chunks: Sequence[Chunk] | None
) -> tuple[Outcome, TaskCommit]:
    """Run one sub-topology over `topics`: all together, or chunk by chunk; one commit at the end."""
    task = StreamTask(part, TaskId(part.id, 0), settings, MemoryBase(), ThreeEach())
    task.initialize()
    if chunks is None:
        for topic in part.source_topics:
            task.add_records(topic, 0, topics[topic])
        task.process()
    else:
        for topic, start, stop in chunks:
            task.add_records(topic, 0, topics[topic].slice(start, stop))
            task.process()
    task.flush()
    sent = list(task.drain_in_order())
    commit = task.prepare_commit()
    changes = {store: dict(changed) for store, changed in commit.changes.items()}
    return Outcome(sent, changes, commit.checkpoint.encode(), dict(commit.dropped_records)), commit


def batch_of(records: Sequence[tuple[Any, ...]]) -> RecordBatch:
    return RecordBatch.of([(*record[:3], offset, record[3]) for offset, record in enumerate(records)])


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def rows_of(topic: str, records: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the drawn records of one topic, keys and values as bytes."""
    return [(encoded(k), encoded(v), ts, headers_from_json(h)) for t, k, v, ts, h in records if t == topic]


def cut(commit: TaskCommit, sizes: Sequence[int]) -> list[Chunk]:
    """Cut what a task took, in its order, into chunks of the sizes given, repeated."""
    assert commit.order is not None
    chunks: list[Chunk] = []
    for traced in commit.order.ranges:
        start, end = traced.first_offset, traced.first_offset + traced.records
        while start < end:
            stop = min(end, start + sizes[len(chunks) % len(sizes)])
            chunks.append((traced.partition.topic, start, stop))
            start = stop
    return chunks


@settings(max_examples=120, deadline=None)
@given(topologies(), RECORDS, st.sampled_from([0, 10_000_000]), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_executions_and_batch_sizes_give_the_same(
    entries: list[Entry], records: list[tuple[Any, ...]], cache_bytes: int, sizes: list[int]
) -> None:
    topics = {
        topic: batch_of(
            [(encoded(k), encoded(v), ts, headers_from_json(h)) for t, k, v, ts, h in records if t == topic]
        )
        for topic in TOPICS
    }
    auto, record = config("auto", cache_bytes), config("record", cache_bytes)
    for part in upstream_first(built(entries)):
        for topic in part.source_topics:
            topics.setdefault(topic, batch_of([]))
        expected, commit = run(part, record, topics, None)
        outcomes = {
            "columns": run(part, auto, topics, None)[0],
            "columns, cut": run(part, auto, topics, cut(commit, sizes))[0],
            "records, cut": run(part, record, topics, cut(commit, sizes))[0],
        }
        for name, outcome in outcomes.items():
            assert outcome == expected, name
        for topic in part.sink_topics:
            sent = [(s.key, s.value, s.timestamp, s.headers) for s in expected.sent if s.topic == topic]
            topics[topic] = batch_of(sent)


@settings(max_examples=60, deadline=None)
@given(topologies(), RECORDS, st.sampled_from(["x", "z"]))
def test_a_function_that_fails_fails_in_both_executions(
    entries: list[Entry], records: list[tuple[Any, ...]], part: str
) -> None:
    refusing = {"op": "map_values", "id": "refusing", "from": "stream0", "mapper": ["refuse", part]}
    topology = built([*entries, refusing, {"op": "to", "id": "last", "from": "refusing", "topic": "last"}])
    rows = rows_of(TOPICS[0], records)
    fails = any(value is not None and part in value.decode() for _, value, _, _ in rows)
    source = next(spec for spec in topology.subtopologies if TOPICS[0] in spec.source_topics)
    assume(not set(source.sink_topics) & set(source.source_topics))
    topics = {topic: batch_of(rows if topic == TOPICS[0] else []) for topic in source.source_topics}
    for execution in ("auto", "record"):
        expected = pytest.raises(StreamsError, match="Exception caught in process") if fails else nullcontext()
        with expected as caught:
            run(source, config(execution, 0), topics, None)
        assert caught is None or "refused" in str(caught.value.__cause__)


@settings(max_examples=50, deadline=None)
@given(topologies(), RECORDS, st.sampled_from([0, 10_000_000]), st.sampled_from(["x", "z"]), st.booleans())
def test_a_failing_record_leaves_the_same_behind_in_both_executions(
    entries: list[Entry], records: list[tuple[Any, ...]], cache_bytes: int, part: str, goes_on: bool
) -> None:
    """What the test driver shows: the error, all that was sent before, the stores, and how much was dropped."""
    texts = [entry["id"] for entry in entries if entry["op"] in ("stream", "merge", "filter", "flat_map_values")]
    refusing = [
        {"op": "flat_map_values", "id": "several", "from": texts[-1], "mapper": "twice", "with_key": True},
        {"op": "map_values", "id": "refusing", "from": "several", "mapper": ["refuse", part]},
        {"op": "group_by", "id": "grouped", "from": "refusing", "mapper": ["null_if_value_contains", "y"]},
        {"op": "count", "id": "counted", "from": "grouped"},
    ]
    steps = [{"in": topic, "key": k, "value": v, "ts": ts, "headers": h} for topic, k, v, ts, h in records]
    settings = {
        "default.key.serde": "string",
        "default.value.serde": "string",
        "statestore.cache.max.bytes": cache_bytes,
        "processing.exception.handler": "continue" if goes_on else "fail",
    }
    case = {"config": settings, "inputs": {}, "outputs": {}, "topology": [*entries, *refusing], "steps": steps}
    assert case_runner.run(case, "auto") == case_runner.run(case, "record")
