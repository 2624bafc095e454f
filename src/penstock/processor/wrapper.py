"""ProcessorWrapper: sees every processor of a topology first, and may put its own in its place (KIP-1112)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.processor.api import ProcessorSupplier
from penstock.processor.fixed_key import FixedKeyProcessorSupplier


class ProcessorWrapper:
    """Wraps the suppliers of all processors, those of the DSL too (Kafka class: ProcessorWrapper).

    Set it as `processor.wrapper.class` in the configuration of a TopologyConfig. A wrapped operator runs record by
    record: its columns are not seen through the wrapper.
    """

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the configuration; called once, before the first processor is added."""

    def wrap_processor_supplier(self, processor_name: str, supplier: ProcessorSupplier) -> ProcessorSupplier:
        """Return the supplier that replaces `supplier` for the node `processor_name`; its stores are those that the
        returned supplier names."""
        return supplier

    def wrap_fixed_key_processor_supplier(
        self, processor_name: str, supplier: FixedKeyProcessorSupplier
    ) -> FixedKeyProcessorSupplier:
        """Return the supplier that replaces `supplier` for the fixed-key processors of the node `processor_name`."""
        return supplier
