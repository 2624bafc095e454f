"""Resets an application: after it the next start is a first one (Kafka tool: kafka-streams-application-reset).

What goes: the checkpoint with positions and state, the copies of state on this machine, what Kafka remembers of the
application (its consumer groups, with the markers of committed epochs), and its internal topics. What stays: the topics
that it reads and writes, and all that other machines keep below `state.dir`, which is no good without the checkpoint
and is deleted when it is met. The checkpoint goes first: an application whose markers alone are left is refused, so a
reset that was interrupted is noticed, and run again.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import KafkaError, counted
from penstock.host.api import ApplicationReset
from penstock.host.deployment.layout import own_topics
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, checkpoint_of
from penstock.host.spark.checkpoints.lock import LOCK_FILE, CheckpointLock
from penstock.host.spark.frames.data_frames import commits_topic_of_source
from penstock.host.spark.protocol.transactions import commits_topic
from penstock.host.storage.directories import application_path
from penstock.plan.subtopology import BuiltTopology


def planned_reset(built: BuiltTopology, config: StreamsConfig, topics: Mapping[str, int]) -> ApplicationReset:
    """Return what a reset of an application deletes; topics: those of its brokers, with their partitions."""
    application_id = str(config.required("application.id"))
    checkpoint = checkpoint_of(config)
    sources = map(commits_topic_of_source, built.data_frame_sources)
    internal = [commits_topic(application_id), *built.data_frame_topics, *sources]
    groups = [application_id, *(topic for topic in internal if topic.endswith("-commits"))]
    own = own_topics(built)
    internal += sorted(own - set(internal))
    # committed offsets without the changelogs that belong to them would let another host go on with no state
    has_group = commits_topic(application_id) in topics or not own.isdisjoint(topics)
    has_checkpoint = checkpoint.exists()
    directory = application_path(config)
    return ApplicationReset(
        application_id,
        checkpoint.uri if has_checkpoint else None,
        checkpoint.last_epoch() if has_checkpoint else None,
        str(directory) if _has_state(directory) else None,
        tuple(groups) if has_group or config["penstock.changelog.topics"] else (),
        tuple(topic for topic in internal if topic in topics),
    )


def reset_application(built: BuiltTopology, config: StreamsConfig, admin: ConfluentAdmin) -> ApplicationReset:
    """Delete what `planned_reset` names; return it.

    Raises:
        LockError: a program runs the application on this machine.
        KafkaError: the brokers do not answer, do not allow it, or a group has members.
    """
    checkpoint, directory = checkpoint_of(config), application_path(config)
    with CheckpointLock(checkpoint, directory, str(config.required("application.id"))):
        plan = planned_reset(built, config, admin.topics())
        if plan.application_id in plan.groups:
            _check_has_no_members(admin, plan.application_id)
        _overtake(checkpoint)
        checkpoint.delete()
        shutil.rmtree(directory, ignore_errors=True)
        admin.delete_groups(plan.groups)
        admin.delete_topics(plan.topics)
    return plan


def _check_has_no_members(admin: ConfluentAdmin, group: str) -> None:
    """Raise KafkaError if instances of another host run: they need the topics."""
    if members := admin.describe_group(group).members:
        raise KafkaError(
            f"The group {group} has {counted(len(members), 'member')}: instances of the application run on another "
            "host, and need its changelog and repartition topics. Stop them first. Nothing was deleted."
        )


def _overtake(checkpoint: Checkpoint) -> None:
    """End a program that runs on the checkpoint on another machine: it commits nothing more."""
    if checkpoint.exists():
        checkpoint.take_generation()


def _has_state(directory: Path) -> bool:
    """Return whether there is a file below `directory` besides locks, which a reset creates itself."""
    return any(path.is_file() and path.name != LOCK_FILE for path in directory.rglob("*"))
