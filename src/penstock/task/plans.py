"""The column plans of a task: after each entry, and after several sources whose records run together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.state.api import EngineStore
from penstock.task.column_plan import ColumnPlan, Entry, column_nodes, column_plan, using_headers
from penstock.task.error_handling import ErrorHandling
from penstock.task.join_nodes import join_nodes
from penstock.task.processor_topology import ProcessorTopology


class Plans:
    """The column plans of one task, each made at its first use.

    Args:
        topology: the nodes.
        errors: the error handlers.
        stores: the stores of the task, by name.
        column_by_column: whether columns are enabled.
    """

    def __init__(
        self,
        topology: ProcessorTopology,
        errors: ErrorHandling,
        stores: Mapping[str, EngineStore],
        column_by_column: bool,
    ) -> None:
        self._topology = topology
        self._errors = errors
        self._able = column_nodes(topology, errors) if column_by_column else frozenset()
        self._joins = join_nodes(topology, errors) if column_by_column else ()
        self._by_record_with_headers = using_headers(topology, stores)
        self._plans: dict[tuple[frozenset[str], frozenset[str]], ColumnPlan] = {}

    def of(self, entries: Sequence[Entry], *, with_headers: bool = False) -> ColumnPlan:
        """Return the plan after `entries`, whose records run together.

        with_headers: whether they have headers, so that nodes whose serdes may use them run record by record.
        """
        without = self._by_record_with_headers if with_headers else frozenset()
        place = without, frozenset([entry.name for entry in entries])
        plan = self._plans.get(place)
        if plan is None:
            joins = [join for join in self._joins if join.names.isdisjoint(without)]
            known = tuple(dict.fromkeys(entries))
            plan = column_plan(known, self._topology, self._able - without, self._errors, joins)
            self._plans[place] = plan
        return plan
