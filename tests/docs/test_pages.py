"""The Python blocks of README.md and docs run, and give what the pages show. Blocks that need Spark run in
tests/host/spark/test_pages.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    KeyValue,
    Processor,
    ProcessorContext,
    Record,
    SessionWindow,
    StreamsBuilder,
    StreamsConfig,
    Windowed,
    WindowedSerdes,
    kip28,
)
from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.config_providers import resolved
from penstock.metrics import MeasurableStat, MetricName, RecordingLevel
from penstock.plan.partitioning import partition_for
from penstock.serdes import Serdes
from penstock.testing import MockProcessorContext, TopologyTestDriver
from penstock_broker.apis import APIS
from penstock_broker.faults import api_name
from penstock_broker.process import BrokerProcess
from tests.docs.pages import (
    BLOCKS,
    BROKER_README,
    PAGES,
    ROOT,
    blocks,
    converting_orders,
    given,
    run_and_compare,
    run_block,
    run_blocks,
)
from tests.support.plain_producer import PlainProducer

STRING, JSON, DOUBLE = Serdes.string(), Serdes.json(), Serdes.double()
SERDES = {"default.key.serde": STRING, "default.value.serde": DOUBLE}


def test_every_block_has_a_test() -> None:
    pages = [ROOT / "README.md", ROOT / BROKER_README, *sorted((ROOT / "docs").rglob("*.md"))]
    found = {str(page.relative_to(ROOT)): len(blocks(str(page.relative_to(ROOT)))) for page in pages}
    assert {page: count for page, count in found.items() if count} == BLOCKS


def test_the_site_lists_every_page() -> None:
    pages = [ROOT / page for page in PAGES]
    listed = {ROOT / "docs" / "index.md"}
    for page in pages:
        for block in re.findall(r"```{toctree}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for line in (line for line in block.splitlines() if line and not line.startswith(":")):
                name = line.rpartition("<")[2].rstrip(">")
                listed.add(ROOT / f"{name[1:]}.md" if name.startswith("/") else page.parent / f"{name}.md")
    assert listed == set(pages), "docs/index.md says which part of the site a page is in"


def test_the_first_page_counts_words() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    run_and_compare("docs/index.md", 0, names)
    run_block("docs/index.md", 1, names)
    assert StreamsConfig(names["config"])["penstock.host"] == "threads"


def test_the_page_on_parking_prints_what_it_shows() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for number in range(BLOCKS["docs/retry-and-park.md"]):
        run_and_compare("docs/retry-and-park.md", number, names)


@pytest.mark.parametrize("number", range(BLOCKS["docs/columns.md"]))
def test_the_page_on_columns_prints_what_it_shows(number: int) -> None:
    run_and_compare("docs/columns.md", number, {"__name__": "page"})


def test_the_readme_counts_words() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for number in range(BLOCKS["README.md"]):
        run_block("README.md", number, names)


def test_the_program_of_the_readme_is_the_example() -> None:
    assert (ROOT / "examples" / "word_count.py").read_text().partition('"""\n\n')[2] == blocks("README.md")[0].lstrip()


def test_topologies(capsys: pytest.CaptureFixture[str]) -> None:
    names = run_blocks("docs/topologies.md")
    assert capsys.readouterr().out.strip() == str(names["topology"].describe()).strip()
    assert names["picture"].startswith("<svg")
    assert names["flowchart"].startswith("flowchart")
    with TopologyTestDriver(names["topology"], {}) as driver:
        trades = driver.create_input_topic("trades", STRING, JSON)
        driver.create_input_topic("companies", STRING, JSON).pipe_input("ABC", {"name": "Abc Inc"}, 0)
        driver.create_input_topic("limits", STRING, Serdes.double()).pipe_input("price", 3.5, 0)
        for price, time in ((1.0, 1000), (3.0, 2000), (4.0, 200_000)):
            trades.pipe_input("ABC", {"ticker": "ABC", "price": price}, time)
        assert driver.create_output_topic("named-trades", STRING, STRING).read_value() == "Abc Inc: 1.0"
        [above] = driver.create_output_topic("above-limit", STRING, JSON).read_values_to_list()
        assert above["price"] == 4.0
        doubles, lists = Serdes.double(), Serdes.list(Serdes.json())
        assert driver.create_output_topic("means", STRING, doubles).read_values_to_list() == [1.0, 2.0, 4.0]
        dearest = driver.create_output_topic("dearest", STRING, lists).read_values_to_list()[-1]
        assert [trade["price"] for trade in dearest] == [4.0, 3.0, 1.0]
        summary = driver.create_output_topic("summaries", STRING, JSON).read_values_to_list()[-1]
        assert summary == {"trades": 3, "highest": 4.0, "quantiles": [3.0, 4.0]}
        assert driver.create_output_topic("means-of-three", STRING, doubles).read_values_to_list() == [8 / 3]
        assert driver.create_output_topic("dearest-of-three", STRING, JSON).read_value()["price"] == 4.0
        alarm = driver.create_output_topic("alarms", STRING, STRING).read_record()
        assert (alarm.key, alarm.value, alarm.headers) == ("ABC", "doubled", (("before", b"1.0"),))
        assert -2.0 in driver.create_output_topic("differences", STRING, DOUBLE).read_values_to_list()
        assert driver.create_output_topic("busy", STRING, Serdes.long()).read_key_values_to_list() == [("ABC", 2)]
        assert driver.create_output_topic("tickers-per-name", STRING, Serdes.long()).read_key_value() == ("Abc Inc", 1)


def test_the_page_on_calendar_windows() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    run_block("docs/calendar-windows.md", 0, names)
    run_and_compare("docs/calendar-windows.md", 1, names)
    for number in (2, 3):
        run_block("docs/calendar-windows.md", number, names)
    with TopologyTestDriver(names["builder"].build()) as driver:
        driver.create_input_topic("orders", STRING, STRING).pipe_input("shop", "a", names["at"](2024, 3, 31, 9))
        keys = {record.topic: record.key for record in driver.read_all_bytes()}
    start, end = names["at"](2024, 3, 31), names["at"](2024, 4, 1)
    session = WindowedSerdes.session_windowed(STRING).deserialize("t", keys["orders-as-sessions"] or b"")
    assert session == Windowed("shop", SessionWindow(start, end - 1))
    assert names["serde"].deserialize("t", b"shop" + start.to_bytes(8, "big")).window.end == end


@pytest.mark.parametrize("number", range(BLOCKS["docs/formats.md"]))
def test_formats(number: int) -> None:
    if "json_schema" in blocks("docs/formats.md")[number]:
        pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    run_and_compare("docs/formats.md", number, {"__name__": "page"})


def test_the_handlers_of_the_guide_send_a_failed_record_to_the_dead_letter_queue() -> None:
    names = given()
    run_block("docs/guide.md", 3, names)
    builder = StreamsBuilder()
    builder.stream("in").map_values(int).to("out")
    serdes = {"default.key.serde": STRING, "default.value.serde": STRING}
    with TopologyTestDriver(builder.build(), {**serdes, **names["config"]}) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "no number")
        assert driver.create_output_topic("word-count-failed", STRING, STRING).read_key_value() == ("k", "no number")


def test_the_page_on_notebooks(embedded_broker: BrokerProcess, tmp_path: Path) -> None:
    config = StreamsConfig({"bootstrap.servers": embedded_broker.bootstrap_servers})
    producer = PlainProducer(config)
    producer.send("notebook-page", None, b"to be or not to be")
    producer.close()
    names: dict[str, Any] = {"__name__": "page"}
    lines = {'"lines"': '"notebook-page"'}
    broker = {"localhost:9092": embedded_broker.bootstrap_servers}
    head = {**broker, "words.head": "first = words.head"}
    view = {
        **broker,
        '"penstock.host"': f'"state.dir": {str(tmp_path)!r}, "penstock.host"',
        "streams.view": "view = streams.view",
    }
    try:
        for number, replaced in enumerate((lines, head, lines, view, {}, lines)):
            run_block("docs/notebook.md", number, names, replaced)
    finally:  # an application that was started keeps the process alive
        if "streams" in names:
            names["streams"].close()
    run_block("docs/notebook.md", 6, names)
    assert not names["tap"].is_open
    assert "store counts keeps its state" in names["edit"].lines
    assert "Store counts" in names["view"]._repr_mimebundle_()["text/html"]
    assert [record.value for record in names["first"]] == ["to", "be", "or", "not", "to"]
    assert "counts" in names["counts"]._repr_mimebundle_(include=["image/svg+xml"])["image/svg+xml"]
    assert dict(zip(names["frame"]["key"], names["frame"]["value"], strict=True)) == {
        "be": 2,
        "not": 1,
        "or": 1,
        "to": 2,
    }
    assert names["table"].num_rows == 4
    assert names["slow"]["key"].tolist() == ["bob"]
    assert names["slow"]["value"].tolist() == ['{"ms":30,"page":"/help"}']


_TEST_FILE = """\
from collections.abc import Iterator

import pytest

from penstock import *
from penstock.testing import TopologyTestDriver


def build_topology():
    builder = StreamsBuilder()
    words = builder.stream("lines", Consumed.with_(Serdes.string(), Serdes.string())).flat_map_values(str.split)
    words.group_by(lambda key, word: word, Grouped.with_(Serdes.string(), Serdes.string())).count(
        Materialized.as_("counts")
    )
    return builder.build()


"""


def test_the_test_of_the_guide_passes(tmp_path: Path) -> None:
    (tmp_path / "test_word_count.py").write_text(_TEST_FILE + blocks("docs/guide.md")[4].lstrip())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout


class Seen(Processor):
    """Counts the records of each key in the store `seen`, and forwards them."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")

    def process(self, record: Record[str, str]) -> None:
        self.seen.put(record.key, (self.seen.get(record.key) or 0) + 1)
        self.context.forward(record)


def test_the_guide_tests_a_single_processor() -> None:
    run_block("docs/guide.md", 5, given(processor=Seen(), MockProcessorContext=MockProcessorContext))


def test_the_configuration_of_the_security_page_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILLS_PASSWORD", "secret")
    names = given()
    run_block("docs/security.md", 0, names)
    config = StreamsConfig(names["config"])
    assert resolved("sasl.password", config["sasl.password"]) == "secret"


def test_the_configuration_of_the_page_on_the_ui_is_valid() -> None:
    names = given()
    run_block("docs/ui.md", 0, names)
    assert StreamsConfig(names["config"])["penstock.ui.port"] == 8090


def test_the_page_on_tracing_shows_the_span_of_a_batch() -> None:
    program = "\n".join(["from penstock import *", *blocks("docs/tracing.md")])
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert '"name": "process orders"' in ended.stdout


def test_the_processor_of_the_spark_page_records_metrics() -> None:
    names = given(
        RecordingLevel=RecordingLevel, MetricName=MetricName, MeasurableStat=MeasurableStat, took_ms=lambda record: 5.0
    )
    run_block("docs/metrics.md", 0, names)
    builder = StreamsBuilder()
    builder.stream("in").process(names["Check"]).to("out")
    with TopologyTestDriver(builder.build(), {"default.key.serde": STRING, "default.value.serde": STRING}) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_key_value_list([KeyValue("k", "v"), KeyValue("k", "w")])
        found = {name.name: metric.metric_value for name, metric in driver.metrics().items() if "check-" in name.name}
    assert found["check-total"] == 2
    assert found["check-latency-avg"] == found["check-latency-max"] == 5.0
    assert "check-rate" in found


def test_the_global_table_of_the_topics_page_converts_orders() -> None:
    with TopologyTestDriver(converting_orders(), SERDES) as driver:
        driver.create_input_topic("rates", STRING, DOUBLE).pipe_input("EUR", 2.0)
        driver.create_input_topic("orders", STRING, JSON).pipe_input("o1", {"currency": "EUR", "amount": 5})
        assert driver.create_output_topic("converted", STRING, DOUBLE).read_key_value() == ("o1", 10.0)


def test_the_stores_of_the_page_on_state_have_a_time_to_live() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    run_block("docs/state.md", 0, names)
    assert names["sessions"].ttl.duration_ms == 3_600_000


def test_the_first_draft_runs() -> None:
    names = given(KafkaProcessor=kip28.KafkaProcessor, PTopology=kip28.PTopology)
    for number in range(BLOCKS["docs/first-papers.md"]):
        run_block("docs/first-papers.md", number, names)
    assert names["groups"] == [[("topic-A", 0), ("topic-A", 1)], [("topic-A", 2), ("topic-A", 3)]]
    with TopologyTestDriver(names["topology"], names["config"]) as driver:
        driver.create_input_topic("lines", STRING, STRING).pipe_input("k", "hello")
        assert driver.create_output_topic("told", STRING, STRING).read_key_value() == ("k", "HELLO")


def test_the_program_of_the_page_on_threads_runs(embedded_broker: BrokerProcess, tmp_path: Path) -> None:
    admin = ConfluentAdmin(StreamsConfig({"bootstrap.servers": embedded_broker.bootstrap_servers}))
    admin.create_topics([NewTopic("threads-page", 1)])
    admin.close()
    builder = StreamsBuilder()
    builder.stream("threads-page").foreach(lambda key, value: None)
    replaced = {
        "localhost:9092": embedded_broker.bootstrap_servers,
        '"penstock.host"': f'"state.dir": {str(tmp_path)!r}, "penstock.host"',
        "    streams.await_termination()": "    state = streams.state()",
    }
    names = given(topology=builder.build())
    run_block("docs/threads.md", 0, names, replaced)
    assert names["state"].value in ("REBALANCING", "RUNNING")
    run_block("docs/threads.md", 1, names)
    for name in ("orders", "reports"):
        names[name].stream("threads-page").foreach(lambda key, value: None)
        names["streams"].add_named_topology(names[name].build()).all().result()
    assert [each.name() for each in names["streams"].get_all_topologies()] == ["orders", "reports"]


def test_the_producer_of_the_page_on_partitioners_places_keys_as_kafka_does(embedded_broker: BrokerProcess) -> None:
    admin = ConfluentAdmin(StreamsConfig({"bootstrap.servers": embedded_broker.bootstrap_servers}))
    admin.create_topics([NewTopic("partitioners-page", 8)])
    admin.close()
    names: dict[str, Any] = {"__name__": "page"}
    run_block("docs/partitioners.md", 0, names, {"localhost:9092": embedded_broker.bootstrap_servers})
    keys = [b"customer-%d" % number for number in range(20)]
    placed: dict[bytes, int] = {}
    for key in keys:
        names["producer"].produce(
            "partitioners-page", key=key, on_delivery=lambda error, it: placed.update({it.key(): it.partition()})
        )
    assert names["producer"].flush(30) == 0
    assert placed == {key: partition_for(key, 8) for key in keys}


def test_the_partitioner_of_the_page_on_partitioners_chooses_by_a_header() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    run_block("docs/partitioners.md", 1, names)
    names["orders"].to("out")
    with TopologyTestDriver(names["builder"].build(), SERDES | {"default.value.serde": STRING}) as driver:
        driver.create_input_topic("orders", STRING, STRING).pipe_input("k", "v", 1)
        assert driver.create_output_topic("out", STRING, STRING).read_value() == "v"
    assert names["by_region"]("t", "k", "v", (("region", b"\x05"),), 4) == {1}


def test_the_page_on_kafka_reads_what_is_there(embedded_broker: BrokerProcess) -> None:
    config = {"bootstrap.servers": embedded_broker.bootstrap_servers, "zookeeper.connect": "localhost:2181"}
    admin = ConfluentAdmin(StreamsConfig(config))
    admin.create_topics([NewTopic("lines", 1)])
    producer = PlainProducer(StreamsConfig(config))
    for line, timestamp in ((b"one", 1_000), (b"two", 2_000), (b"three", 3_000)):
        producer.send("lines", None, line, timestamp=timestamp)
    producer.close()
    names = given(config=config, noon_ms=2_000)
    for number in range(BLOCKS["docs/kafka-platform.md"]):
        run_block("docs/kafka-platform.md", number, names)
    assert names["cluster"] == admin.cluster_id() is not None
    assert names["state"].isr == names["state"].replicas
    assert names["committed"] == {}
    assert names["all_lines"] == [b"one", b"two", b"three"]
    assert names["last_line"] == [b"three"]
    assert names["since_noon"] == [b"two", b"three"]
    admin.close()


def test_the_page_of_the_broker_lists_the_apis_that_are_served() -> None:
    page = (ROOT / "docs" / "broker.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d+) \| (\w+) \| (\d+) to (\d+) \|$", page, re.MULTILINE)
    served = [(str(key), api_name(key), str(api.min_version), str(api.max_version)) for key, api in APIS.items()]
    assert sorted(listed) == sorted(served)


def test_the_schema_registry_of_the_page_of_the_broker() -> None:
    run_and_compare("docs/broker.md", 1, {"__name__": "page"})


def passed(directory: Path, *tests: str) -> str:
    """Run Python blocks as one file of tests, and return what pytest says of them; fails if a test does."""
    (directory / "test_orders.py").write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(directory)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=directory)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_fixture_of_the_page_of_the_broker(tmp_path: Path) -> None:
    assert "2 passed" in passed(tmp_path, *(blocks("docs/broker.md")[number] for number in (0, 2)))


def test_the_page_on_programs_without_penstock(tmp_path: Path) -> None:
    assert "6 passed" in passed(tmp_path, *blocks("docs/testing-kafka-programs.md"))


def test_the_readme_of_the_broker(tmp_path: Path) -> None:
    *tests, program = blocks(BROKER_README)
    assert "2 passed" in passed(tmp_path, *tests)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.startswith("127.0.0.1:")
