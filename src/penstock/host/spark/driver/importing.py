"""Creates a checkpoint from the state of tasks that another host ran.

The next start continues there. The checkpoint has one manifest, with a snapshot of each task. Records in repartition
topics, between the tasks, are carried to the first epoch. The checkpoint is invisible until its metadata are written,
last.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.client.api import Admin
from penstock.config import StreamsConfig
from penstock.host.deployment.listed_topics import listed_topics
from penstock.host.deployment.topics import named_topics
from penstock.host.spark.checkpoints.carried import write_carried
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Manifest, Metadata
from penstock.host.spark.checkpoints.manifests import check_absent
from penstock.host.spark.checkpoints.stored_description import dump_for_checkpoint
from penstock.host.spark.checkpoints.task_segments import write_state
from penstock.host.spark.driver.preparation import placed
from penstock.host.spark.protocol.application_description import ApplicationDescription
from penstock.host.spark.protocol.placement import shape
from penstock.host.spark.protocol.task_entry import TaskEntry
from penstock.host.storage.task_state import TaskState
from penstock.plan.subtopology import BuiltTopology, TaskId
from penstock.record import PartitionBatch, TopicPartition
from penstock_broker.common.clock import SystemClock

_FIRST_EPOCH = 1


def make_checkpoint(
    built: BuiltTopology,
    config: StreamsConfig,
    checkpoint: Checkpoint,
    admin: Admin,
    states: Iterable[tuple[TaskId, TaskState]],
) -> Metadata:
    """Create the checkpoint of an application from the states of its tasks; return its metadata.

    `states` covers all tasks and is consumed one at a time: a state is needed only until the next one is requested. If
    the iterable raises, no checkpoint remains.

    Raises:
        StreamsError: a checkpoint already exists. Also raises the errors of `preparation.check`.
    """
    check_absent(checkpoint, "Import")
    checkpoint.delete_manifests()  # remains of a failed import
    topics = listed_topics(admin, named_topics(built, config))
    topology, placement = placed(built, config, admin, topics, parallelism=1)
    global_topics = () if topology.global_topology is None else topology.global_topology.source_topics
    ids = admin.topic_ids({*placement.source_partitions, *global_topics} & topics.keys())
    now = SystemClock().milliseconds()
    partitions = {**topics, **placement.source_partitions}
    description = ApplicationDescription(
        config, topology, placement, partitions, {}, checkpoint.uri, "", "", 0, False, "", topic_ids=ids
    )
    metadata = Metadata(
        uuid.uuid4().hex,
        uuid.uuid4().hex,
        description.application_id,
        {},
        (),  # the first start sets them, to the number of cores of the session
        0,
        shape(topology, placement, config),
        start_epoch=_FIRST_EPOCH,
        start_ms=now,
        topic_ids=ids,
        former_owners=None,  # the application may have run on Spark before
    )
    positions: dict[TopicPartition, int] = {}
    tasks: dict[str, TaskEntry] = {}
    for task, state in states:
        kinds = description.subtopologies[task.subtopology].store_kinds
        own = replace(state, identity=metadata.checkpoint_id.encode() + state.identity)
        tasks[str(task)] = _write_task(checkpoint, str(task), kinds, own, config["penstock.row.max.bytes"])
        positions.update(state.positions)
    begin: dict[str, list[int]] = {}
    for partition in sorted(positions):
        begin.setdefault(partition.topic, []).append(positions[partition])
    manifest = Manifest(metadata.query_id, _FIRST_EPOCH, 0, now, now, tasks, begin)
    checkpoint.write_manifest(manifest, lambda: None)
    stored = dump_for_checkpoint(description)
    checkpoint.write_description(stored.digest, stored.data)
    entered = replace(metadata, begin=begin, plan=stored.digest)
    checkpoint.write_metadata(entered)
    return entered


def _write_task(
    checkpoint: Checkpoint, task: str, kinds: Mapping[str, str], state: TaskState, row_max_bytes: int
) -> TaskEntry:
    entry = write_state(checkpoint, task, kinds, state)
    rows = (PartitionBatch(*partition, batch) for partition, records in state.waiting.items() for batch in records())
    carried = write_carried(checkpoint, task, _FIRST_EPOCH, (), rows, row_max_bytes)
    return replace(entry, carried=carried, due_ms=0)  # so that its processors are initialised even without input
