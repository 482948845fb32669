"""Edit the checklists of agents: what the console, the API and a sync of declarations call.

Every edit is a new revision with its author, written under the lock of the checklist. An edit that names the revision that it was
made from is refused if another one came between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from agents import registry
from agents.checklists.history import write_revision
from agents.exceptions import DeclarationError
from agents.guards.atomic import not_in_atomic_body
from agents.guards.storable import storable
from agents.models import Checklist, ChecklistItem, PromptAgentVersion
from runs.db.sql import database_now
from runs.exceptions import IllegalState
from runs.incidents.items import items_removed
from runs.models.audit import record

CODE = "code"  # shown as the author of items declared in code
MOST_ITEMS = 100
TEXT_LENGTH = 2000
FASTEST, SLOWEST = timedelta(seconds=1), timedelta(days=366)
DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class ItemEdit:
    """An item as an edit wants it; without an `id` it is new."""

    text: str
    every: timedelta | None = None
    paused: bool = False
    id: int | None = None


@not_in_atomic_body
def create_checklist(agent: str, *, trigger: str = "", items: Sequence[ItemEdit] = (), by: str) -> Checklist:
    """Make the checklist of an agent, or of one of its triggers. ValueError names a wrong item; IllegalState: it exists."""
    _check(items)
    _require_person(agent, by)
    with transaction.atomic():
        checklist, is_new = Checklist.objects.get_or_create(agent=agent, trigger=trigger)
        if not is_new:
            raise IllegalState(f"{checklist} has a checklist already; edit it.", status="exists")
        _write_items(_lock(checklist.pk), items)
        write_revision(checklist, by)
        record(by, "create", checklist, agent=agent, trigger=trigger, items=len(items))
    return checklist


@not_in_atomic_body
def edit_checklist(checklist_id: int, items: Sequence[ItemEdit], *, by: str, revision: int | None = None) -> Checklist:
    """Replace the items by these, in this order; an item that keeps its id keeps its outcome. ValueError names a wrong item;
    IllegalState: another edit came after `revision`."""
    _check(items)
    with transaction.atomic():
        checklist = _lock(checklist_id, revision)
        _require_person(checklist.agent, by)
        before = list(checklist.items.values_list("id", flat=True))
        _write_items(checklist, items)
        write_revision(checklist, by)
        record(by, "edit", checklist, revision=checklist.revision, items=len(items), items_before=len(before))
        items_removed(set(before) - {item.id for item in items}, by=by)
    return checklist


@not_in_atomic_body
def silence_checklist(checklist_id: int, until: datetime | None, *, by: str) -> Checklist:
    """Make no item due until this time; None: end the silence."""
    with transaction.atomic():
        checklist = _lock(checklist_id)
        checklist.silenced_until = until
        checklist.save(update_fields=["silenced_until"])
        write_revision(checklist, by, vouches=False)
        record(by, "silence" if until else "unsilence", checklist, **_until(until))
    return checklist


@not_in_atomic_body
def silence_item(item_id: int, until: datetime | None, *, by: str) -> ChecklistItem:
    """The item is not due until then; None: it is due again."""
    return _change_item(item_id, "silence" if until else "unsilence", by, silenced_until=until)


@not_in_atomic_body
def pause_item(item_id: int, *, by: str) -> ChecklistItem:
    """Do not look at the item until it is resumed. IllegalState: it is paused."""
    return _change_item(item_id, "pause", by, paused_at=database_now())


@not_in_atomic_body
def resume_item(item_id: int, *, by: str) -> ChecklistItem:
    """Look at the item again. IllegalState: it is not paused."""
    return _change_item(item_id, "resume", by, paused_at=None)


def in_a_day() -> datetime:
    return database_now() + DAY


def declared_checklists() -> dict[str, list[ItemEdit]]:
    """The checklists that the code declares, by agent. DeclarationError names each wrong one."""
    found: dict[str, list[ItemEdit]] = {}
    problems = []
    for agent in registry.agents_in_code():
        found[agent.name] = [ItemEdit(text=text, every=every) for text, every in agent.checklist.items()]
        try:
            _check(found[agent.name])
        except ValueError as error:
            problems.append(f"agent {agent.name!r}: checklist: {error}")
    if problems:
        raise DeclarationError("\n".join(problems))
    return found


def sync_checklists(declared: Mapping[str, Sequence[ItemEdit]]) -> list[str]:
    """Write the declared checklists; what changed, in words."""
    return [f"wrote the checklist of {agent}" for agent, items in declared.items() if declare_checklist(agent, items)]


@not_in_atomic_body
def declare_checklist(agent: str, wanted: Sequence[ItemEdit]) -> bool:
    """Write the items that the code declares, until the first edit of a person: from then on the checklist is theirs. Returns
    whether anything changed; not if a person, or another sync, comes first."""
    try:
        return _declare(agent, wanted)
    except IllegalState:
        return False


def _declare(agent: str, wanted: Sequence[ItemEdit]) -> bool:
    checklist = Checklist.objects.filter(agent=agent, trigger="").first()
    if checklist is None:
        if wanted:
            create_checklist(agent, items=wanted, by=CODE)
        return bool(wanted)
    if checklist.revisions.exclude(by=CODE).exists():
        return False
    known = {item.text: item for item in checklist.items.all()}
    if [(text, item.every) for text, item in known.items()] == [(one.text, one.every) for one in wanted]:
        return False
    kept = [
        ItemEdit(text=one.text, every=one.every, id=known[one.text].pk if one.text in known else None) for one in wanted
    ]
    edit_checklist(checklist.pk, kept, by=CODE, revision=checklist.revision)
    return True


def _lock(checklist_id: int, revision: int | None = None) -> Checklist:
    checklist = Checklist.objects.select_for_update().get(pk=checklist_id)
    if revision is not None and checklist.revision != revision:
        raise IllegalState(
            f"The checklist was edited meanwhile: it has revision {checklist.revision}, not {revision}. Look at it again.",
            status="edited",
        )
    checklist.updated_at = database_now()
    checklist.save(update_fields=["updated_at"])
    return checklist


def _require_person(agent: str, by: str) -> None:
    """The items of a prompt agent that acts by a person's own connections are that person's to write. IllegalState: it is another."""
    acts_for = PromptAgentVersion.acts_for(agent)  # of a deleted one, too: anyone may restore it
    if acts_for and by not in (CODE, f"admin:{acts_for}"):
        raise IllegalState(
            f"{agent} acts by connections of {acts_for}, who alone may write its checklist.", status="refused"
        )


def _check(items: Sequence[ItemEdit]) -> None:
    if len(items) > MOST_ITEMS:
        raise ValueError(f"a checklist has at most {MOST_ITEMS} items, not {len(items)}")
    for number, item in enumerate(items, start=1):
        if not item.text.strip() or len(item.text) > TEXT_LENGTH:
            raise ValueError(f"item {number}: the text must have 1 to {TEXT_LENGTH:,} characters")
        if item.every is not None and not FASTEST <= item.every <= SLOWEST:
            raise ValueError(f"item {number}: the interval must be from one second to a year")


def _write_items(checklist: Checklist, items: Sequence[ItemEdit]) -> None:
    # In the order in which runs record outcomes (agents.checklists.run_checklist), against deadlocks.
    known = {item.pk: item for item in checklist.items.order_by("id").select_for_update()}
    ids = [item.id for item in items if item.id is not None]
    if unknown := sorted(set(ids) - set(known)):
        raise ValueError(f"the checklist has no item {unknown[0]}; leave out the id of a new item")
    if len(ids) != len(set(ids)):
        raise ValueError("an item is named twice")
    checklist.items.exclude(pk__in=ids).delete()
    now = database_now()
    for position, wanted in enumerate(items):
        item = known.get(wanted.id) if wanted.id is not None else None
        item = item or ChecklistItem(checklist=checklist, due_at=now)
        if item.every != wanted.every and item.last_checked_at:
            item.due_at = item.last_checked_at + wanted.every if wanted.every else now
        item.position, item.text, item.every = position, storable(wanted.text.strip(), "an item"), wanted.every
        if wanted.paused != (item.paused_at is not None):
            item.paused_at = now if wanted.paused else None
        item.save()


def _change_item(item_id: int, action: str, by: str, **fields: Any) -> ChecklistItem:
    with transaction.atomic():
        checklist = _lock(ChecklistItem.objects.values_list("checklist_id", flat=True).get(pk=item_id))
        item = checklist.items.select_for_update().get(pk=item_id)
        for name, value in fields.items():
            if name == "paused_at" and (getattr(item, name) is None) == (value is None):
                state = "paused" if item.paused_at else "on"
                raise IllegalState(f"The item is {state} already.", status=state)
            setattr(item, name, value)
        item.save(update_fields=list(fields))
        write_revision(checklist, by, vouches=False)
        record(by, action, checklist, item=item.pk, **_until(fields.get("silenced_until")))
    return item


def _until(instant: datetime | None) -> dict[str, str]:
    return {"until": instant.isoformat(timespec="seconds")} if instant else {}
