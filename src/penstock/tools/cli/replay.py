"""`penstock replay`: runs an epoch of an application on Spark again, in this process.

`--break` and `--pdb` start a debugger.
"""

from __future__ import annotations

import pdb
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Annotated, Any, Final

import orjson
import typer

import penstock
import penstock_broker
from penstock.application.store_entries import plain
from penstock.config import StreamsConfig
from penstock.errors import SerializationError, StreamsError, counted
from penstock.host.spark.driver.replaying import EpochReplay, Replay
from penstock.plan.serde_check import node_serde
from penstock.plan.subtopology import BuiltTopology, ProcessorSpec, SinkSpec, TaskId
from penstock.record import PartitionBatch, Record
from penstock.serdes import Serde
from penstock.task.stream_task import StreamTask
from penstock.tools.cli.common import FAILED, AsJson, Settings, Verbose, err, parsed_settings, print_json, set_verbose
from penstock.tools.cli.program import load_program
from penstock.tools.cli.run import File, HostName

_NOT_OF_THE_USER: Final = tuple(
    {
        *(str(Path(str(package.__file__)).parent) for package in (penstock, penstock_broker)),
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
    }
)


def replay(
    file: File,
    epoch: Annotated[
        int | None,
        typer.Option("--epoch", "-e", min=1, help="Its number; by default one that failed, or the last committed."),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", "-t", metavar="TASK", help="Only the output of this task, such as 0_2.")
    ] = None,
    break_at: Annotated[
        list[str] | None,
        typer.Option("--break", "-b", metavar="NODE", help="Stop in your function of this node, at each record."),
    ] = None,
    debug: Annotated[bool, typer.Option("--pdb", help="Stop where your function raises.")] = False,
    as_json: AsJson = False,
    config: Settings = None,
    verbose: Verbose = False,
) -> None:
    """Run an epoch of an application on Spark once more, in this process, and compare it with what was committed.

    It writes nothing: no topic, no checkpoint, no state. The output is shown. The exit code is 1 if something differs.
    """
    if verbose:
        set_verbose(True)
    overrides: dict[str, Any] = parsed_settings(config)
    if break_at:
        overrides["penstock.execution"] = "record"  # so that each record reaches its node alone
    program = load_program(file)
    settings = program.configured({"penstock.host": HostName.spark.value, **overrides})
    built = program.topology.build(str(settings.required("application.id")))
    _check_nodes(built, break_at or [])
    debugger = _Debugger(sys.stderr if as_json else sys.stdout)
    with tempfile.TemporaryDirectory(prefix="penstock-replay-") as scratch:
        found = EpochReplay(built, settings, Path(scratch), epoch)
        with redirect_stdout(sys.stderr if as_json else sys.stdout):
            try:
                done = found.run(
                    None if task is None else _task(task), lambda each: debugger.watch(each, break_at or [])
                )
            except StreamsError as error:
                if debug and not debugger.was_quit:
                    debugger.examine(error)
                if debugger.was_quit:
                    raise typer.Exit(FAILED) from None
                error.add_note(f"This was epoch {found.epoch}; nothing was written.")
                raise
    if debugger.was_quit:
        raise typer.Exit(FAILED)
    _show(done, list(_records(done, built, settings)), as_json)
    if not done.is_same:
        raise typer.Exit(FAILED)


def _task(text: str) -> TaskId:
    try:
        return TaskId.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"expected a task such as 0_2, got {text!r}", param_hint="--task") from error


def _check_nodes(built: BuiltTopology, names: list[str]) -> None:
    nodes = {node.name: node for part in built.subtopologies for node in part.nodes}
    for name in names:
        if not isinstance(nodes.get(name), ProcessorSpec | SinkSpec):
            known = ", ".join(each for each, node in nodes.items() if isinstance(node, ProcessorSpec | SinkSpec))
            raise typer.BadParameter(f"there is no processor or sink {name!r}; there are {known}", param_hint="--break")


class _Debugger(pdb.Pdb):
    """Python's debugger, which steps only through the user's code."""

    def __init__(self, output: IO[str]) -> None:
        super().__init__(stdout=output)
        self.was_quit = False
        """Whether the user has ended the replay."""

    def watch(self, task: StreamTask, nodes: list[str]) -> None:
        """Stop in the functions of `nodes`, at each record that reaches them."""
        for node in nodes:
            task.before_each(node, lambda record, node=node: self._stop(task.task_id, node, record))  # type: ignore[misc]  # a lambda with a default

    def _stop(self, task: TaskId, node: str, record: Record[Any, Any]) -> None:
        if not self.was_quit:
            self.message(f"Task {task}, node {node}: key {record.key!r}, value {record.value!r}, at {record.timestamp}")
            self.set_trace()

    def examine(self, error: BaseException) -> None:
        """Examine the innermost cause of `error`, at the raising line of the user's function."""
        while error.__cause__ is not None:
            error = error.__cause__
        self.message(f"{type(error).__name__}: {error}")
        self.reset()
        self.interaction(None, _of_the_user(error.__traceback__))

    def stop_here(self, frame: FrameType) -> bool:
        """Return whether to stop: only in the user's code."""
        return _is_of_the_user(frame) and bool(super().stop_here(frame))

    def user_call(self, frame: FrameType, argument_list: Any) -> None:
        """Stop at the first line of a function, not before it."""

    def set_quit(self) -> None:
        """End the replay."""
        self.was_quit = True
        super().set_quit()


def _is_of_the_user(frame: FrameType) -> bool:
    return not frame.f_code.co_filename.startswith((*_NOT_OF_THE_USER, "<"))


def _of_the_user(trace: TracebackType | None) -> TracebackType | None:
    """Return `trace` up to the innermost line of the user, where the debugger starts."""
    frames, last = trace, trace
    while frames is not None:
        last = frames if _is_of_the_user(frames.tb_frame) else last
        frames = frames.tb_next
    if last is None:
        return trace
    return TracebackType(None, last.tb_frame, last.tb_lasti, last.tb_lineno)


# ---------------------------------------- output


def _records(done: Replay, built: BuiltTopology, config: StreamsConfig) -> Iterator[dict[str, Any]]:
    """Yield the output, with keys and values deserialized by the serdes of the sinks."""
    sinks = {node.topic: node for part in built.subtopologies for node in part.nodes if isinstance(node, SinkSpec)}
    for task, part in done.output:
        sink, batch = sinks.get(part.topic), part.batch
        serdes = (None, None) if sink is None else (node_serde(sink, "key", config), node_serde(sink, "value", config))
        for row, timestamp in enumerate(batch.timestamps.tolist()):
            yield {
                "task": str(task),
                "topic": part.topic,
                "partition": part.partition,
                "timestamp": timestamp,
                "key": _read(serdes[0], part, batch.keys[row]),
                "value": _read(serdes[1], part, batch.values[row]),
                "headers": [[name, value] for name, value in batch.headers_at(row)],
            }


def _read(serde: Serde | None, part: PartitionBatch, data: bytes | None) -> Any:
    if data is None or serde is None:
        return data
    try:
        return serde.deserialize(part.topic, data)
    except (SerializationError, ValueError):
        return data


def _show(done: Replay, records: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        answer = {
            "application_id": done.application_id,
            "epoch": done.epoch,
            "planned_at_ms": done.planned_ms,
            "committed": done.is_committed,
            "same": done.is_same if done.is_committed else None,
            "differences": done.differences,
            "tasks": [{**asdict(each), "task": str(each.task)} for each in done.tasks],
            "output": records,
        }
        print_json(orjson.loads(orjson.dumps(answer, default=plain)))
        return
    for each in records:
        text = orjson.dumps({name: each[name] for name in ("key", "value", "timestamp")}, default=plain).decode()
        sys.stdout.write(f"{each['topic']}-{each['partition']}\t{text}\n")
    sys.stdout.flush()
    for line in done.differences:
        err.print(line, markup=False)
    for replayed in done.tasks:
        if replayed.is_logged:
            err.print(f"task {replayed.task}: its result is in the result log; no function is called", markup=False)
        for line in replayed.differences:
            err.print(f"task {replayed.task}: {line}", markup=False)
    processed = counted(sum(each.records for each in done.tasks), "record")
    if not done.is_committed:
        verdict = "it was not committed, so there is nothing to compare with"
    elif done.is_same:
        verdict = "it is the same as what was committed"
    else:
        verdict = "it differs from what was committed: the functions have changed, or are not deterministic"
    err.print(f"Epoch {done.epoch} of {done.application_id}, {processed}: {verdict}.", markup=False)
