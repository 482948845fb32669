"""Make and edit prompt agents. Every edit is a new version with its author; an edit that names the version it was made from is
refused if another one came between."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction

from agents import registry
from agents.budget import Budget as Caps
from agents.guards.atomic import not_in_atomic_body
from agents.models import Checklist, PromptAgent, PromptAgentVersion
from agents.prompt_agents import catalog
from agents.prompt_agents.definition import Definition
from agents.tools import toolbox
from runs.actions.checklists import ItemEdit, create_checklist, edit_checklist
from runs.budgets.caps import create_budget, set_cap
from runs.db.sql import database_now
from runs.exceptions import IllegalState
from runs.models import Budget
from runs.models.audit import record
from triggers.declarations.overrides import override
from triggers.exceptions import Invalid
from triggers.models import Schedule, Trigger
from triggers.prompt_agents.connections import connection_faults, with_owner
from triggers.prompt_agents.wakes import When, add_wake
from triggers.schedules.edit import pause_schedule
from triggers.schedules.rows import VANISHED

NAME = re.compile(r"[a-z0-9][-a-z0-9_]{0,99}")
MOST = 200  # prompt agents: every process reads their names again and again


@not_in_atomic_body
def create_prompt_agent(
    name: str,
    definition: Definition,
    *,
    when: Sequence[When] = (),
    checklist: Sequence[ItemEdit] = (),
    budget: Caps | None = None,
    by: str,
) -> PromptAgent:
    """Make an agent, with a trigger for each `when`, a checklist and caps. The name of a deleted one may be used again: its versions
    go on. Invalid, RuleError or ValueError name each wrong field."""
    _require_right([*_name_faults(name), *_faults(definition, by)])
    with transaction.atomic():
        agent = _add(name, with_owner(definition, by), by)
        if checklist or not Checklist.objects.filter(agent=name, trigger="").exists():
            set_checklist(name, checklist, by=by)  # also an empty one can be silenced
        set_budget(name, budget, by=by)
        for one in when:
            add_wake(name, one, by=by)
        record(by, "create", agent, name=name, version=agent.newest)
    return agent


@not_in_atomic_body
def edit_prompt_agent(agent_id: int, definition: Definition, *, by: str, version: int | None = None) -> PromptAgent:
    """Make a new version, with which later runs begin. The same definition is no edit. Invalid names each wrong field; IllegalState:
    it is deleted, another edit came after `version`, or a newer version of Wakeful has saved it."""
    _require_right(_faults(definition, by))
    definition = with_owner(definition, by)
    with transaction.atomic():
        agent = _lock(agent_id)
        if agent.is_deleted:
            raise IllegalState(f"Prompt agent {agent} is deleted. Restore it first.", status="deleted")
        if version is not None and agent.newest != version:
            raise IllegalState(
                f"{agent} was edited meanwhile: it has version {agent.newest}, not {version}. Look at it again.",
                status="edited",
            )
        before = newest_of(agent)
        if before.fingerprint == definition.version:
            return agent
        if lost := Definition.beyond(before.definition):
            # To keep them is no way out: they may name what only their author may have the agent use.
            raise IllegalState(
                f"{agent} was saved by a newer version of Wakeful, with {', '.join(lost)}, which an edit by this one would lose. "
                "Edit it when the upgrade is done.",
                status="newer",
            )
        agent.newest += 1
        agent.save(update_fields=["newest"])
        _write_version(agent, definition, by)
        changed = [one.what for one in changes(Definition.load(before.definition), definition)]
        record(by, "edit", agent, version=agent.newest, changed=changed)
    return agent


@not_in_atomic_body
def delete_prompt_agent(agent_id: int, *, by: str) -> PromptAgent:
    """Delete a prompt agent: disable its triggers and pause its schedules, but not those of an agent in code with its
    name. Queued and waiting runs stay unchanged until it is restored, or they are cancelled. IllegalState: it is
    deleted.
    """
    with transaction.atomic():
        agent = _lock(agent_id)
        if agent.is_deleted:
            raise IllegalState(f"Prompt agent {agent} is deleted already.", status="deleted")
        _disable_triggers(agent, by)
        agent.deleted_at, agent.deleted_by = database_now(), by
        agent.save(update_fields=["deleted_at", "deleted_by"])
        record(by, "delete", agent, name=agent.name)
    return agent


@not_in_atomic_body
def restore_prompt_agent(agent_id: int, *, by: str) -> PromptAgent:
    """Restore a deleted prompt agent: its runs continue, and its triggers stay disabled until a person enables them.
    IllegalState: it is not deleted; Invalid: code has its name now.
    """
    with transaction.atomic():
        agent = _lock(agent_id)
        if not agent.is_deleted:
            raise IllegalState(f"Prompt agent {agent} is not deleted.", status="active")
        _require_right(list(_in_code(agent.name)))
        _require_room()
        agent.deleted_at, agent.deleted_by = None, ""
        agent.save(update_fields=["deleted_at", "deleted_by"])
        _disable_triggers(agent, by)  # one that a person has enabled since: the dispatcher knows it as that of no agent
        record(by, "restore", agent, name=agent.name)
    return agent


@not_in_atomic_body
def set_budget(name: str, budget: Caps | None, *, by: str) -> None:
    """Set the caps that `budget` names; others stay. They are the operators', as if made on the Budgets page."""
    if budget is None:
        return
    for period, measure, cap in budget.caps():
        place = {"scope": "agent", "name": name, "period": period, "measure": measure}
        row = Budget.objects.filter(**place).first()
        if row is None:
            create_budget(**place, cap=cap, at_cap=budget.at_cap, by=by)
        elif row.cap != cap:
            set_cap(row.pk, cap, by=by)


@not_in_atomic_body
def set_checklist(name: str, items: Sequence[ItemEdit], *, by: str) -> None:
    """Replace the items of its checklist; one with a text that it has keeps its outcome. ValueError names a wrong item."""
    known = Checklist.objects.filter(agent=name, trigger="").first()
    if known is None:
        create_checklist(name, items=items, by=by)
        return
    ids = {item.text: item.pk for item in known.items.all()}
    edit_checklist(known.pk, [replace(item, id=ids.pop(item.text.strip(), None)) for item in items], by=by)


def newest_of(agent: PromptAgent) -> PromptAgentVersion:
    return agent.versions.get(number=agent.newest)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A field that differs between two versions."""

    what: str
    before: Any
    after: Any


def changes(before: Definition, after: Definition) -> list[Change]:
    old, new = before.dump(), after.dump()
    return [Change(what=name, before=old[name], after=new[name]) for name in new if old[name] != new[name]]


def _add(name: str, definition: Definition, by: str) -> PromptAgent:
    _require_room()
    agent, is_new = PromptAgent.objects.get_or_create(name=name)
    if not is_new:
        agent = _lock(agent.pk)
        if not agent.is_deleted:
            raise Invalid([f"name: a prompt agent {name!r} exists; edit it, or choose another name"])
        agent.newest, agent.deleted_at, agent.deleted_by = agent.newest + 1, None, ""
        agent.save(update_fields=["newest", "deleted_at", "deleted_by"])
        _disable_triggers(agent, by)
    _write_version(agent, definition, by)
    catalog.refresh(at_once=True)  # its triggers need it
    return agent


def _require_room() -> None:
    if PromptAgent.objects.filter(deleted_at=None).count() >= MOST:
        raise IllegalState(f"There are {MOST} prompt agents, the most there may be. Delete one first.", status="full")


def _disable_triggers(agent: PromptAgent, by: str) -> None:
    """All but those that the code declares: an agent in code has the name, and they wake that one."""
    triggers = Trigger.objects.filter(agent=agent.name).order_by("slug")
    theirs = [one for one in triggers if one.declared is None or VANISHED in one.declared]
    for trigger in theirs:
        if trigger.enabled:
            override(trigger, {"enabled": False}, by)
    for schedule in Schedule.objects.filter(trigger__in=theirs, task__enabled=True).order_by("id"):
        pause_schedule(schedule, by=by, note="its prompt agent was deleted")


def _write_version(agent: PromptAgent, definition: Definition, by: str) -> None:
    PromptAgentVersion.objects.create(
        agent=agent, number=agent.newest, fingerprint=definition.version, definition=definition.dump(), by=by
    )


def _lock(agent_id: int) -> PromptAgent:
    return PromptAgent.objects.select_for_update().get(pk=agent_id)


def _name_faults(name: str) -> Iterator[str]:
    if not NAME.fullmatch(name):
        yield "name: must be lower-case letters, digits, hyphens and underscores, 100 at most, such as 'morning-triage'"
    yield from _in_code(name)


def _in_code(name: str) -> Iterator[str]:
    if name in {agent.name for agent in registry.agents_in_code()}:
        yield f"name: an agent in code is called {name!r}; choose another name"


def _faults(definition: Definition, by: str) -> list[str]:
    faults = list(definition.faults())
    if not any(fault.startswith("tools:") for fault in faults):
        known = [tool.name for tool in toolbox.all_tools()]
        faults += [
            f"tools: no tool {name!r} is registered; there are {', '.join(known) or 'none'}"
            for name in definition.tools
            if name not in known
        ]
    return faults or list(connection_faults(definition, by))


def _require_right(faults: Sequence[str]) -> None:
    if faults:
        raise Invalid(list(faults))
