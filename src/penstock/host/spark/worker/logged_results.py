"""Results of tasks that survive in the result log, and count for each attempt of their epoch.

A task whose functions may have another outcome next time runs once in an epoch; see `checkpoints/result_log`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.errors import IncompatibleCheckpointError
from penstock.host.crashpoints import crash_point
from penstock.host.packing.record_blobs import decode_batch, encode_batch
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.result_log import ResultLog
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.messages import TaskControl, TaskReport
from penstock.host.spark.protocol.rows import decode_message, encode_message
from penstock.host.spark.worker.bases import keep_base
from penstock.host.spark.worker.determinism import TaskResult
from penstock.plan.subtopology import TaskId

_VERSION = 1
"""Version of the format of a result, which contains a TaskReport."""


def logged_result(
    description: ApplicationDescription,
    checkpoint: Checkpoint,
    task: TaskId,
    control: TaskControl,
    run: Callable[[], TaskResult],
) -> TaskResult:
    """Return the result of a task: that of its first attempt in the epoch, or that of `run`.

    A changed program has results of its own: it runs only if no output of the epoch is committed, and may be the
    correction of a function whose result stopped the epoch. Raises the errors of `run`, which the log does not keep.
    """
    log = _log_of(description, checkpoint, task, control)
    found = log.find()
    if found is not None:
        keep_base(description, str(task), checkpoint)
        return _decoded(found, description.generation)
    result = run()
    if result.report.phases is None:  # it had nothing to do
        return result
    mine = _encoded(result, description.config["penstock.row.max.bytes"])
    agreed = _log_of(description, checkpoint, task, control).write(
        mine, partial(crash_point, "result.torn_write", control.epoch)
    )
    crash_point("result.after_write", control.epoch)
    return result if agreed == mine else _decoded(agreed, description.generation)


def found_result(
    description: ApplicationDescription, checkpoint: Checkpoint, task: TaskId, control: TaskControl
) -> TaskResult | None:
    """Return the result of the first attempt of a task in an epoch, None if the log has none."""
    found = _log_of(description, checkpoint, task, control).find()
    return None if found is None else _decoded(found, description.generation)


def _log_of(
    description: ApplicationDescription, checkpoint: Checkpoint, task: TaskId, control: TaskControl
) -> ResultLog:
    run = f"{description.program}{control.offset_digest}{control.entry.head}"
    return ResultLog(checkpoint, control.epoch, str(task), run)


def _encoded(result: TaskResult, row_max_bytes: int) -> bytes:
    """Return a result for `_decoded`, without taps, which are for the driver of this attempt."""
    blobs = [
        blob
        for topic, partition, batch, _ in result.output
        for blob in encode_batch(topic, partition, batch, row_max_bytes)
    ]
    return encode_message((_VERSION, result.report._replace(tapped={}).encode(), blobs))


def _decoded(data: bytes, generation: int) -> TaskResult:
    """Return the result of another attempt, as of the driver of `generation`.

    Raises IncompatibleCheckpointError for a result of another version of the format.
    """
    version, report, blobs = decode_message(data)
    if version != _VERSION:
        raise IncompatibleCheckpointError(
            f"The result log has a result in version {version} of its format; this version of Penstock reads version "
            f"{_VERSION}. Finish the epoch with the version of Penstock that began it, then start this one."
        )
    return TaskResult([*map(decode_batch, blobs)], TaskReport.decode(report)._replace(generation=generation))
