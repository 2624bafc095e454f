"""All pages of one application, in the order of the menu."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.tools.ui.answers import Answers
from penstock.tools.ui.markup import Markup, element
from penstock.tools.ui.pages import changes, commits, control, errors, overview, state, tasks, topology, waiting
from penstock.tools.ui.pages.layout import Page, document
from penstock.tools.ui.parameters import Parameters


class Pages:
    """Makes the pages of one application.

    Args:
        answers: of the application.
        actions: the actions available for the application.
    """

    def __init__(self, answers: Answers, actions: Sequence[str] = ()) -> None:
        self._answers = answers
        self._application_id = str(answers.config["application.id"])
        self._control_page = control.page(answers, actions)
        self._topology_page = topology.page(answers, actions)
        self.all: Sequence[Page] = (
            overview.page(answers),
            self._topology_page,
            *(module.page(answers) for module in (tasks, commits, state, waiting, errors, changes)),
            *([self._control_page] if actions else []),
        )
        """The pages in the order of the menu."""

    def html(self, page: Page, parameters: Parameters) -> str:
        """Return a whole page."""
        unseen = self._answers.observer.newest.unseen
        added = {} if unseen is None else {"unseen": element("p", unseen, class_="empty")}
        return document(self._application_id, self.all, page, parameters, added)

    def after_action(self, outcome: Markup, fields: Parameters) -> str:
        """Return the page after an action, with its `outcome_of`.

        It is the page of the node in the fields of the form, or else the control page.
        """
        named = {name: fields[name] for name in ("topology", "node") if fields.get(name)}
        page = self._topology_page if "node" in named else self._control_page
        parameters = named if "node" in named else {}
        return document(self._application_id, self.all, page, parameters, {"outcome": outcome})
