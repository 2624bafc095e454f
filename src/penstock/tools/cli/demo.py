"""`penstock demo`: counts the words of a real text, with a broker.

The word count runs on Spark or in this process. This module has the steps; demo_view.py has the display. Each run
starts with an empty directory, which is kept afterwards for inspection; a lock excludes a second demo. All processes of
the demo end with it, however it ends.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentConsumer, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.config.kafka_keys import EXACTLY_ONCE_V2
from penstock.errors import LockError, StreamsError
from penstock.host.api import State, StreamThreadExceptionResponse
from penstock.host.open import check_host
from penstock.private_files import open_private, private_directory
from penstock.record import RecordBatch, TopicPartition
from penstock.serdes import Serdes
from penstock.streams import KafkaStreams
from penstock.termination import terminating
from penstock.tools.cli.common import Verbose, err, out, set_verbose
from penstock.tools.cli.demo_view import DemoView, WordCounts
from penstock.tools.cli.program import LoadedProgram, load_program
from penstock.tools.cli.run import HostName, HostOption
from penstock_broker.process import BrokerProcess

INPUT: Final = "plaintext-input"
OUTPUT: Final = "word-count-output"
_TEXT: Final = "python-language-reference.txt"
_PARTITIONS: Final = 2
_SETTINGS: Final[Mapping[HostName, Mapping[str, Any]]] = {
    HostName.spark: {"penstock.batch.max.bytes": 1024 * 1024},  # small epochs, to show the counts growing
    HostName.threads: {"processing.guarantee": EXACTLY_ONCE_V2},
}
_STARTING: Final[Mapping[HostName, str]] = {
    HostName.spark: "Starting Spark on this machine ...",
    HostName.threads: "Starting the word count in this process ...",
}
_WITHOUT_SPARK: Final = "`penstock demo --host threads` runs the same word count without Spark and Java."
_MIN_FREE_BYTES: Final = 512 * 1024 * 1024
_POLL_MS: Final = 100
_POLL_RECORDS: Final = 20_000
_QUIET_SECONDS: Final = 10.0
"""How long the output may be silent after the end of the word count."""


def demo(
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="How many times the text is written.")] = 25,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Where broker, state and checkpoint go; it is cleared first.")
    ] = None,
    host: HostOption = None,
    verbose: Verbose = False,
) -> None:
    """Count the words of a real text, and watch the counts grow."""
    if verbose:
        set_verbose(True)
    program = load_program(_examples() / "word_count.py")
    overrides = {} if host is None else {"penstock.host": host.value}
    chosen = HostName(program.configured(overrides)["penstock.host"])
    try:
        check_host(program.configured(overrides))
    except StreamsError as error:
        error.add_note(_WITHOUT_SPARK)
        raise
    directory = data_dir or Path(StreamsConfig()["state.dir"]) / "demo"
    with terminating(), _own(directory), BrokerProcess(directory / "broker") as broker:
        config = program.configured(
            {
                **overrides,
                **_SETTINGS[chosen],
                "bootstrap.servers": broker.bootstrap_servers,
                "state.dir": str(directory / "state"),
                **({"penstock.spark.log.level": "info"} if verbose and chosen is HostName.spark else {}),
            }
        )
        err.print(f"[bold]1[/] A broker listens at {broker.bootstrap_servers}.")
        words = _write_text(config, repeat)
        _count(program, config, words)
    _tell_where_to_look_next(directory, program.path, "" if host is None else f" --host {host.value}")


def _examples() -> Path:
    """Return the directory of the examples: in the installed package, else next to src/."""
    package = Path(__file__).resolve().parents[2]
    for directory in (package / "examples", package.parent.parent / "examples"):
        if (directory / "word_count.py").is_file():
            return directory
    raise StreamsError(f"The examples are missing: expected them in {package / 'examples'}; install Penstock again.")


@contextmanager
def _own(directory: Path) -> Iterator[None]:
    """Hold `directory`, emptied, for the time of the block.

    Raises LockError if another demo holds it.
    """
    try:
        private_directory(directory)
        lock = open_private(directory.parent / f"{directory.name}.lock", "ab")
    except OSError as error:
        raise StreamsError(f"Cannot use {directory}: {error.strerror}; name another with --data-dir.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockError(
                f"Another demo is running in {directory}; stop it, or name another directory with --data-dir."
            ) from error
        unknown = sorted({each.name for each in directory.iterdir()} - {"broker", "state"})
        if unknown:
            raise StreamsError(
                f"{directory} contains other files than a demo's ({', '.join(unknown[:3])}); name another directory."
            )
        for each in directory.iterdir():
            shutil.rmtree(each)
        free = shutil.disk_usage(directory).free
        if free < _MIN_FREE_BYTES:
            raise StreamsError(
                f"The demo needs {_MIN_FREE_BYTES >> 20} MiB free at {directory}, but has {free >> 20} MiB; free some "
                "space, or name another disk with --data-dir."
            )
        yield


def _write_text(config: StreamsConfig, repeat: int) -> WordCounts:
    """Create the topics, write the text `repeat` times, and return its word counts."""
    admin = ConfluentAdmin(config)
    admin.create_topics([NewTopic(INPUT, _PARTITIONS), NewTopic(OUTPUT, _PARTITIONS)])
    admin.close()
    lines = (_examples() / "data" / _TEXT).read_text(encoding="utf-8").splitlines()
    once = Counter(word for line in lines for word in line.lower().split())
    words = WordCounts(Counter({word: count * repeat for word, count in once.items()}))
    producer = ConfluentProducer(config)
    columns = (TextColumn("[bold]2[/] {task.description}"), BarColumn(bar_width=20), MofNCompleteColumn())
    with Progress(*columns, console=err) as progress:
        bar = progress.add_task(f"Writing lines to the topic {INPUT}", total=len(lines) * repeat)
        for _ in range(repeat):
            for line in lines:
                producer.send(INPUT, None, line.encode())
            progress.advance(bar, len(lines))
        producer.close()
    return words


def _count(program: LoadedProgram, config: StreamsConfig, words: WordCounts) -> None:
    """Run the word count to the topic's end, and show the counts meanwhile."""
    host = HostName(config["penstock.host"])
    streams = KafkaStreams(program.topology, config)
    streams.set_uncaught_exception_handler(lambda error: StreamThreadExceptionResponse.SHUTDOWN_CLIENT)
    failures: list[BaseException] = []
    running_since = [time.monotonic()]

    def changed(new: State, old: State) -> None:
        if new is State.RUNNING:
            running_since.append(time.monotonic())

    streams.set_state_listener(changed)

    def run() -> None:
        try:
            streams.run_to_end()
        except Exception as error:
            failures.append(error)

    counting = threading.Thread(target=run, name="demo-word-count", daemon=True)
    consumer = ConfluentConsumer(config)
    consumer.assign({TopicPartition(OUTPUT, number): 0 for number in range(_PARTITIONS)})
    try:
        with err.status(f"[bold]3[/] {_STARTING[host]}"):
            counting.start()
            first = _first_counts(consumer, counting)
        seconds = _watch(consumer, counting, words, first, running_since[-1])
    finally:
        streams.close()
        counting.join()
        consumer.close()
    if failures:
        if host is HostName.spark and len(running_since) == 1:
            failures[0].add_note(_WITHOUT_SPARK)
        raise failures[0]
    _tell_result(words, seconds)


def _first_counts(consumer: ConfluentConsumer, counting: threading.Thread) -> list[tuple[TopicPartition, RecordBatch]]:
    while counting.is_alive():
        arrived = consumer.poll(_POLL_MS, _POLL_RECORDS)
        if arrived:
            return arrived
    return []


def _watch(
    consumer: ConfluentConsumer,
    counting: threading.Thread,
    words: WordCounts,
    arrived: list[tuple[TopicPartition, RecordBatch]],
    began: float,
) -> float:
    """Show the counts until all words are counted or the word count has ended.

    Return the seconds since `began`.
    """
    texts, numbers = Serdes.string(), Serdes.long()
    view = DemoView(words)
    heard = time.monotonic()
    with Live(view.render(0), console=out, refresh_per_second=8) as live:
        while True:
            for _, batch in arrived:
                keys, values = texts.deserialize_column(OUTPUT, batch.keys), batch.values
                words.update(zip(keys, numbers.deserialize_column(OUTPUT, values), strict=True))
            live.update(view.render(time.monotonic() - began))
            if words.complete():
                return time.monotonic() - began
            if arrived:
                heard = time.monotonic()
            elif not counting.is_alive() and time.monotonic() - heard > _QUIET_SECONDS:
                return heard - began
            arrived = consumer.poll(_POLL_MS, _POLL_RECORDS)


def _tell_result(words: WordCounts, seconds: float) -> None:
    if not out.is_terminal:
        out.print()  # the last frame has no newline at its end
    out.print(
        f"Counted {words.counted:,} words, {len(words.counts):,} distinct ones, in {seconds:.1f} s "
        f"({words.counted / max(seconds, 0.001):,.0f} words/s), with {words.updates:,} updates of the table."
    )
    if not words.exact():
        wrong = sum(1 for word, count in words.expected.items() if words.counts.get(word) != count)
        raise StreamsError(f"The counts of {wrong:,} words differ from a plain count of the text; this is a defect.")
    out.print("Every count equals a plain count of the text, and each update is in the topic exactly once.")


def _tell_where_to_look_next(directory: Path, program: Path, host: str = "") -> None:
    """Show follow-up commands; host: the option for the host, as it was given."""
    command, shown = _command(), _shown(program)
    guide = _examples().parent / "docs" / "guide.md"
    out.print(
        f"""
Where to look next:
  the program                     {shown}
  its topology                    {command} describe {shown}
  the topics that are left        {command} broker --data-dir {directory / "broker"}
    and beside it                 {command} topics list
                                  {command} consume {OUTPUT} --from-beginning --value-serde long --max-messages 10
  a word count of your own lines  {command} run {shown}{host}
    and beside it                 {command} produce {INPUT}
                                  {command} consume {OUTPUT} --from-beginning --value-serde long
""".rstrip(),
        markup=False,
    )
    if guide.is_file():  # it is not installed with the package
        out.print(f"  how to run an application       {_shown(guide)}", markup=False)


def _command() -> str:
    """Return the command for `penstock` here.

    Penstock may not be on the path, or may run as a module.
    """
    script = Path(sys.argv[0])
    if shutil.which("penstock"):
        return "penstock"
    return (
        f"{_shown(Path(sys.executable))} -m penstock.tools.cli.main" if script.suffix == ".py" else str(_shown(script))
    )


def _shown(path: Path) -> Path:
    """Return `path` as a user would type it here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
