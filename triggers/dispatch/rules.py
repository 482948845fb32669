"""The triggers, subscriptions and switches for the dispatcher, cached until their tables change."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from agents.prompt_agents import catalog
from runs.db.sql import fetch
from runs.models.policy import Policy, nature_of
from triggers.dispatch.listeners import ListenerIndex
from triggers.matching.expressions.cel import compile_each
from triggers.matching.flow_control import Intake
from triggers.matching.index import Index, Rule
from triggers.matching.match import wanted_by
from triggers.matching.pending import Item
from triggers.models import Trigger
from triggers.outbound.match import Subscriptions
from triggers.switches.switches import Switches

# Always one row, even if the table was emptied; the next edit of a trigger fills it again.
VERSION = """
SELECT version, changed_by::text, pg_backend_pid() FROM (SELECT) AS always LEFT JOIN triggers_rulesversion ON true
"""
ROWS = "SELECT id, xmin::text, ctid::text FROM triggers_trigger"
FEW = 100  # edited triggers that are read while the dispatch lock is held

Versions = dict[UUID, tuple[str, str]]


class Rules:
    """The indexed triggers, subscriptions and switches. Database triggers increment a version in each transaction that changes one;
    then the changed rows are read again, and all subscriptions. On a new connection all rows are read."""

    def __init__(self) -> None:
        self.version: Any = None
        self.rows: Versions = {}
        self.index = Index([])
        self.subscriptions = Subscriptions()
        self.switches = Switches()
        self.listeners = ListenerIndex(self.subscriptions, self.switches)

    def have_changed(self) -> bool:
        """Whether a trigger has changed since it was read. `current` reads it again."""
        return self.version is None or fetch(VERSION) != self.version

    def current(self) -> Index:
        """The current index. Under the dispatch lock, check `concerned` for events that later edits affect."""
        if self.version is None or fetch(VERSION) != self.version:
            # Read the version first, so that the rows are at least as new; store it last, so that a failed read is repeated.
            version, rows = fetch(VERSION), _rows()
            catalog.refresh(at_once=True)  # triggers of a new prompt agent arrive together with it
            if self.version is None or version[0][-1] != self.version[0][-1]:
                self.index, self.rows, self.switches = Index([]), {}, Switches()
            edited = _edited(self.rows, rows)
            kept = [rule for id, rule in self.index.by_id.items() if id not in edited]
            self.index = Index([*kept, *_read(edited)])
            self.subscriptions = Subscriptions.read()
            self.switches.refresh()
            self.listeners = ListenerIndex(self.subscriptions, self.switches)
            self.rows, self.version = rows, version
        return self.index

    def concerned(self, items: Sequence[Item], index: Index) -> set[Item]:
        """The items, matched with `index`, whose triggers have changed since. They have to be matched again."""
        if not self.have_changed():
            return set()
        edited = _edited(self.rows, _rows())
        if len(edited) > FEW or index is not self.index:
            return set(items)
        now = Index(_read(edited))
        return {
            item for item in items if wanted_by(item, now) or any(rule.id in edited for rule in wanted_by(item, index))
        }


def _rows() -> Versions:
    """The version of each row."""
    return {id: (xmin, ctid) for id, xmin, ctid in fetch(ROWS)}


def _edited(before: Versions, now: Versions) -> set[UUID]:
    return {id for id in before.keys() | now.keys() if before.get(id) != now.get(id)}


def _read(ids: Collection[UUID]) -> list[Rule]:
    return [rule_of(trigger) for trigger in Trigger.objects.filter(id__in=ids)]


def rule_of(trigger: Trigger) -> Rule:
    try:
        policy, intake, problem = (
            Policy.load(
                {**trigger.policy, **nature_of(trigger.agent), "overlap": trigger.overlap, "tools": trigger.tools}
            ),
            Intake.load(trigger.policy),
            "",
        )
    except ValueError as error:
        policy, intake, problem = Policy(tools=()), Intake(), str(error)
    return Rule(
        id=trigger.id,
        slug=trigger.slug,
        agent=trigger.agent,
        source=trigger.source,
        types=tuple(trigger.types),
        filter=trigger.filter,
        input=trigger.input,
        key=trigger.key,
        key_limit=trigger.key_limit,
        overlap=trigger.overlap,
        policy=policy,
        intake=intake,
        problem=problem,
        enabled=trigger.enabled,
        paused_reason=trigger.paused_reason if trigger.is_paused else None,
        compiled=compile_each((trigger.filter, trigger.key, *trigger.input.values())),
        is_resuming=trigger.resuming_at is not None,
    )
