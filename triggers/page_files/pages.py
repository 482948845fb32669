"""What people keep as a page of text: the items of a checklist, and the instructions of a prompt agent (its standing orders)."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from django.db import models

from agents.checklists.page import PageItem, above_items, plain, read_page, write_page
from agents.models import Checklist, ChecklistItem, PromptAgent
from agents.prompt_agents.definition import Definition
from runs.actions.checklists import ItemEdit, edit_checklist
from triggers.prompt_agents.edit import edit_prompt_agent, newest_of


class Page(Protocol):
    """A page of text. `number` is that of the revision or version that it shows."""

    number: int

    @property
    def owner(self) -> models.Model: ...

    def text(self, instead_of: str = "") -> str:
        """The page; it keeps what only the file has that it is written `instead_of`, as far as it can."""

    def is_same(self, text: str) -> bool:
        """Does the text stand for what is here? ValueError: it is no such page."""

    def is_empty(self) -> bool: ...

    def loses(self, text: str) -> str:
        """What of this text a page written instead of it would not have, in words; empty: nothing."""

    def write(self, text: str, *, by: str) -> int:
        """Replace what is here, unless it has another number by now (IllegalState); the new number. ValueError: it is no such page."""


class ChecklistPage:
    """The items of a checklist. An item with a text that the checklist has keeps its outcome."""

    def __init__(self, checklist: Checklist) -> None:
        self.owner, self.number = checklist, checklist.revision
        self._items = list(checklist.items.all())

    def text(self, instead_of: str = "") -> str:
        above, _ = above_items(instead_of)
        return write_page(f"Checklist of {self.owner}", [_page_item(item) for item in self._items], above=above)

    def is_same(self, text: str) -> bool:
        return read_page(text) == [_page_item(item) for item in self._items]

    def is_empty(self) -> bool:
        return not self._items

    def loses(self, text: str) -> str:
        return "headings or comments between its items" if above_items(text)[1] else ""

    def write(self, text: str, *, by: str) -> int:
        return edit_checklist(self.owner.pk, self.edits(text), by=by, revision=self.number).revision

    def edits(self, text: str) -> list[ItemEdit]:
        return list(_edits(self._items, read_page(text)))


class InstructionsPage:
    """The instructions of a prompt agent."""

    def __init__(self, agent: PromptAgent) -> None:
        self.owner, self.number = agent, agent.newest
        self._definition = Definition.load(newest_of(agent).definition)

    def text(self, instead_of: str = "") -> str:
        return f"{plain(self._definition.instructions)}\n"

    def is_same(self, text: str) -> bool:
        return plain(text) == plain(self._definition.instructions)

    def is_empty(self) -> bool:
        return False

    def loses(self, text: str) -> str:
        return ""

    def write(self, text: str, *, by: str) -> int:
        changed = replace(self._definition, instructions=plain(text))
        return edit_prompt_agent(self.owner.pk, changed, by=by, version=self.number).newest


@dataclass(frozen=True, kw_only=True)
class Named:
    """The page that a person names: of a checklist, or with `instructions` of a prompt agent."""

    agent: str
    trigger: str = ""
    instructions: bool = False

    def page(self) -> Page:
        """ValueError: there is none."""
        if self.instructions:
            agent = PromptAgent.objects.filter(name=self.agent, deleted_at=None).first()
            if agent is None:
                raise ValueError(
                    f"there is no prompt agent {self.agent!r}: only prompt agents have instructions to edit"
                )
            return InstructionsPage(agent)
        checklist = Checklist.objects.filter(agent=self.agent, trigger=self.trigger).first()
        if checklist is None:
            of = f"trigger {self.trigger!r} of agent {self.agent!r}" if self.trigger else f"agent {self.agent!r}"
            raise ValueError(f"{of} has no checklist: make one in the admin, or declare it in code")
        return ChecklistPage(checklist)


def _page_item(item: ChecklistItem) -> PageItem:
    return PageItem(text=plain(item.text).strip(), every=item.every, paused=item.paused_at is not None)


def _edits(items: Iterable[ChecklistItem], wanted: Iterable[PageItem]) -> Iterable[ItemEdit]:
    known = defaultdict[str, list[ChecklistItem]](list)
    for item in items:
        known[plain(item.text).strip()].append(item)
    for one in wanted:
        of_text = known[one.text]
        same = of_text.pop(0) if of_text else None
        text = same.text if same else one.text
        yield ItemEdit(text=text, every=one.every, paused=one.paused, id=same.pk if same else None)
