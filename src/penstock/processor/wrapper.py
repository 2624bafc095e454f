"""ProcessorWrapper: wraps or replaces every processor of a topology (KIP-1112)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.processor.api import ProcessorSupplier
from penstock.processor.fixed_key import FixedKeyProcessorSupplier


class ProcessorWrapper:
    """Wraps the suppliers of all processors, including those of the DSL (Kafka class: ProcessorWrapper).

    Set it as `processor.wrapper.class` in the configuration of a TopologyConfig. A wrapped operator runs record by
    record: its column operations are not visible through the wrapper.
    """

    def configure(self, config: Mapping[str, Any]) -> None:
        """Receive the configuration; called once, before the first processor is added."""

    def wrap_processor_supplier(self, processor_name: str, supplier: ProcessorSupplier) -> ProcessorSupplier:
        """Return the supplier that replaces `supplier` for the node `processor_name`.

        The node's stores are those of the returned supplier.
        """
        return supplier

    def wrap_fixed_key_processor_supplier(
        self, processor_name: str, supplier: FixedKeyProcessorSupplier
    ) -> FixedKeyProcessorSupplier:
        """Return the supplier that replaces `supplier` for a node with fixed-key processors.

        The name of the node is `processor_name`.
        """
        return supplier
