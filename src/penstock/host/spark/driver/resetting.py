"""Resets an application, so that its next start is a first one (Kafka tool: kafka-streams-application-reset).

A reset deletes the checkpoint with positions and state, the copies of state on this machine, Kafka's data about the
application (its consumer groups, with the markers of committed epochs), and its internal topics. It keeps the topics
that the application reads and writes, and the data that other machines keep below `state.dir`, which is useless without
the checkpoint and is deleted when found. The checkpoint is deleted first: an application with nothing but its markers
is refused, so an interrupted reset is noticed and run again.
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
    """Plan a reset of an application; `topics`: those of its brokers, with their numbers of partitions."""
    application_id = str(config.required("application.id"))
    checkpoint = checkpoint_of(config)
    sources = map(commits_topic_of_source, built.data_frame_sources)
    internal = [commits_topic(application_id), *built.data_frame_topics, *sources]
    groups = [application_id, *(topic for topic in internal if topic.endswith("-commits"))]
    own = own_topics(built)
    internal += sorted(own - set(internal))
    # with committed offsets but without their changelogs, another host would continue without state
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
    """Delete everything in the plan of `planned_reset`; return the plan.

    Raises:
        LockError: a program runs the application on this machine.
        KafkaError: the brokers do not answer or do not allow it, or a group has members.
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
    """Raise KafkaError if instances of another host run, because they need the topics."""
    if members := admin.describe_group(group).members:
        raise KafkaError(
            f"The group {group} has {counted(len(members), 'member')}: instances of the application run on another "
            "host, and need its changelog and repartition topics. Stop them first. Nothing was deleted."
        )


def _overtake(checkpoint: Checkpoint) -> None:
    """End a program that uses the checkpoint on another machine: it can commit nothing more."""
    if checkpoint.exists():
        checkpoint.take_generation()


def _has_state(directory: Path) -> bool:
    """Return whether `directory` has a file other than locks. A reset creates locks itself."""
    return any(path.is_file() and path.name != LOCK_FILE for path in directory.rglob("*"))
