"""TopologyEdit: the changes made by an edit of a running application, for notebooks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.notebook import HTML, SVG, TEXT, Forms, heading_text, mime_bundle, preformatted, with_heading
from penstock.plan.describe import TopologyDescription


@dataclass(frozen=True)
class TopologyEdit:
    """The changes made by `KafkaStreams.edit`.

    Args:
        application_id: of the application.
        lines: the change of each store, then all other differences, in the format of `penstock diff`; empty if only
            functions have changed.
        description: of the topology that runs now.
    """

    application_id: str
    lines: tuple[str, ...]
    description: TopologyDescription

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        return mime_bundle(self._forms(), include, exclude)

    def __str__(self) -> str:
        return self._forms()[TEXT]()

    def _forms(self) -> Forms:
        title = f"KafkaStreams {self.application_id} continues with the changed topology"
        text = "\n".join(self.lines or ("Stores, topics and nodes are the same; the functions are the new ones.",))
        svg = self.description.to_svg
        return {
            TEXT: lambda: f"{heading_text(title, {})}\n{text}",
            HTML: lambda: with_heading(title, {}, preformatted(text) + svg()),
            SVG: svg,
        }
