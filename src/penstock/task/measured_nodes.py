"""Nodes that count the records that they are handed, for a task whose `metrics.recording.level` asks for it (Kafka
class: ProcessorNodeMetrics). Any other task has the plain ones, which pay nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.metrics.host_metrics import NODE_ID, PROCESS, operation_of
from penstock.metrics.measurements import Recorder
from penstock.plan.subtopology import ProcessorSpec, SinkSpec
from penstock.record import Int64Array, Record, RecordBatch, TopicPartition
from penstock.task.column_plan import Entry
from penstock.task.context import TaskContext
from penstock.task.error_handling import ErrorHandling
from penstock.task.execution import Execution, Flow, Part
from penstock.task.processor_topology import NodeFactory, ProcessorNode, ProcessorTopology, SinkNode, SourceNode
from penstock.task.record_collector import RecordCollector
from penstock.task.record_sender import DeadLetterSink, RecordSender


def process_of(node: str) -> str:
    """Return by which operation the records of `node` are counted."""
    return operation_of(PROCESS, NODE_ID, node)


class MeasuredProcessorNode(ProcessorNode):
    """A node with a processor that counts the records which it is handed one by one."""

    def __init__(self, recorder: Recorder, spec: ProcessorSpec, task: TaskContext, errors: ErrorHandling) -> None:
        """As ProcessorNode; `recorder` takes the count."""
        super().__init__(spec, task, errors)
        self._recorder = recorder
        self._operation = process_of(spec.name)

    def process(self, record: Record[Any, Any]) -> None:
        """Count the record and process it."""
        self._recorder.count(self._operation, 1)
        super().process(record)


class MeasuredSinkNode(SinkNode):
    """A sink that counts the records which it is handed."""

    def __init__(
        self,
        recorder: Recorder,
        spec: SinkSpec,
        task: TaskContext,
        collector: RecordCollector,
        sender: RecordSender,
        errors: ErrorHandling,
    ) -> None:
        """As SinkNode; `recorder` takes the count."""
        super().__init__(spec, task, collector, sender, errors)
        self._recorder = recorder
        self._operation = process_of(spec.name)

    def process(self, record: Record[Any, Any]) -> None:
        """Count the record and send it."""
        self._recorder.count(self._operation, 1)
        super().process(record)

    def process_columns(self, batch: RecordBatch, sequence: Int64Array) -> None:
        """Count the rows and send them."""
        self._recorder.count(self._operation, len(batch))
        super().process_columns(batch, sequence)


class MeasuredNodeFactory(NodeFactory):
    """Makes nodes that count."""

    def __init__(self, recorder: Recorder) -> None:
        """Make `recorder` take the counts."""
        self._recorder = recorder

    def processor(self, spec: ProcessorSpec, task: TaskContext, errors: ErrorHandling) -> ProcessorNode:
        """Return a node with a processor."""
        return MeasuredProcessorNode(self._recorder, spec, task, errors)

    def sink(
        self,
        spec: SinkSpec,
        task: TaskContext,
        collector: RecordCollector,
        sender: RecordSender,
        errors: ErrorHandling,
    ) -> SinkNode:
        """Return a sink."""
        return MeasuredSinkNode(self._recorder, spec, task, collector, sender, errors)


class MeasuredExecution(Execution):
    """Counts the records of the sources, and the rows of the nodes that work on columns."""

    def __init__(
        self,
        recorder: Recorder,
        topology: ProcessorTopology,
        task: TaskContext,
        collector: RecordCollector,
        dead_letters: DeadLetterSink,
        errors: ErrorHandling,
        column_by_column: bool,
        punctuate_stream_time: Callable[[], None],
    ) -> None:
        """As Execution; `recorder` takes the counts."""
        super().__init__(topology, task, collector, dead_letters, errors, column_by_column, punctuate_stream_time)
        self._recorder = recorder

    def run_serialized(
        self, source: SourceNode, partition: TopicPartition, batch: RecordBatch, stream_times: Int64Array
    ) -> None:
        """Count the records, at the source and at the node that counts them as bytes, and run them."""
        for name in (source.name, source.children[0].name):
            self._recorder.count(process_of(name), len(batch))
        super().run_serialized(source, partition, batch, stream_times)

    def run(self, source: SourceNode, partition: TopicPartition, batch: RecordBatch, stream_times: Int64Array) -> None:
        """Count the records and run them."""
        self._recorder.count(process_of(source.name), len(batch))
        super().run(source, partition, batch, stream_times)

    def run_mixed(
        self,
        sources: Sequence[SourceNode],
        partitions: Sequence[TopicPartition],
        numbers: Int64Array,
        batch: RecordBatch,
        stream_times: Int64Array,
    ) -> None:
        """Count the records, each at its source, and run them."""
        for source, records in zip(sources, np.bincount(numbers, minlength=len(sources)).tolist(), strict=True):
            self._recorder.count(process_of(source.name), records)
        super().run_mixed(sources, partitions, numbers, batch, stream_times)

    def _run_node(self, entry: Entry, flow: Flow, node: ProcessorNode, part: Part, partition: TopicPartition) -> None:
        self._recorder.count(process_of(node.name), len(part.batch))
        super()._run_node(entry, flow, node, part, partition)
