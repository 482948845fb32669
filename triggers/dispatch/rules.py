"""The triggers, subscriptions and switches for the dispatcher, cached until their tables change."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from agents.prompt_agents import catalog
from runs.db.sql import fetch
from runs.models.policy import Policy, nature_of
from triggers.dispatch.listeners import ListenerIndex
from triggers.django_tasks.terms import problem_of
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
# The rows that may have changed since a snapshot, whose oldest open transaction is `since`: those that were written by it or by a later
# one. A subtransaction's number is greater than its transaction's. `xmin` has 32 bits: it is the greatest such number of 64 bits that has
# been given. Its transaction may be long gone; then the row is read once too often, at most.
CHANGED = """
WITH now AS (
  SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next
)
SELECT now.oldest, (SELECT count(*) FROM triggers_trigger), coalesce((
  SELECT json_object_agg(id, xmin::text || ' ' || ctid::text) FROM triggers_trigger
  WHERE now.next - mod(now.next - xmin::text::bigint, 4294967296) >= %s::bigint), '{}')
FROM now
"""
IDS = "SELECT id FROM triggers_trigger"
FEW = 100  # edited triggers that are read while the dispatch lock is held

Versions = dict[UUID, str]
Version = list[tuple[int | None, str | None, int]]  # rows of VERSION


@dataclass(frozen=True, kw_only=True)
class Read:
    """The rows of the triggers, with the version of each, and the number of the oldest transaction that was open then."""

    rows: Versions = field(default_factory=dict)
    oldest: int = 0

    def again(self) -> tuple["Read", set[UUID]]:
        """The rows as they are now, and the ids of those that have been edited, made or deleted since."""
        [(oldest, count, changed)] = fetch(CHANGED, [self.oldest])
        written = {UUID(id): version for id, version in changed.items()}
        edited = {id for id, version in written.items() if self.rows.get(id) != version}
        rows = {**self.rows, **written} if edited else self.rows
        # Each row that is there was known, or written since.
        if len(rows) > count:
            deleted = rows.keys() - {id for (id,) in fetch(IDS)}
            rows, edited = {id: version for id, version in rows.items() if id not in deleted}, edited | deleted
        return Read(rows=rows, oldest=oldest), edited


class Rules:
    """The indexed triggers, subscriptions and switches. Database triggers increment a version in each transaction that changes one;
    then the changed rows are read again, and all subscriptions. On a new connection all rows are read."""

    def __init__(self) -> None:
        self.version: Version | None = None
        self.seen: Version | None = None  # the version a moment ago, for the next `current`
        self.read = Read()
        self.index = Index([])
        self.subscriptions = Subscriptions()
        self.switches = Switches()
        self.listeners = ListenerIndex(self.subscriptions, self.switches)

    def have_changed(self) -> bool:
        """Whether a trigger has changed since it was read. `current` reads it again."""
        return self.version is None or fetch(VERSION) != self.version

    def current(self) -> Index:
        """The current index. Under the dispatch lock, check `concerned` for events that later edits affect."""
        # Read the version first, so that the rows are at least as new; store it last, so that a failed read is repeated.
        version, self.seen = self.seen or fetch(VERSION), None
        if version != self.version:
            if self.version is None or version[0][-1] != self.version[0][-1]:
                self.index, self.read, self.switches = Index(), Read(), Switches()
            read, edited = self.read.again()
            catalog.refresh(at_once=True)  # triggers of a new prompt agent arrive together with it
            self.index = self.index.edited(edited, _read(edited))
            self.read = read
            self.subscriptions = Subscriptions.read()
            self.switches.refresh()
            self.listeners = ListenerIndex(self.subscriptions, self.switches)
            self.version = version
        return self.index

    def concerned(self, items: Sequence[Item], index: Index, version: Version) -> set[Item]:
        """The items, matched with `index`, whose triggers have changed since; `version` is the present one. They have to be matched
        again."""
        if version == self.version:
            return set()
        _, edited = self.read.again()
        if len(edited) > FEW or index is not self.index:
            return set(items)
        now = Index(_read(edited))
        return {
            item for item in items if wanted_by(item, now) or any(rule.id in edited for rule in wanted_by(item, index))
        }


def _read(ids: Collection[UUID]) -> list[Rule]:
    return [rule_of(trigger) for trigger in Trigger.objects.filter(id__among=list(ids))] if ids else []


def rule_of(trigger: Trigger) -> Rule:
    try:
        policy, intake, problem = (
            Policy.load(
                {**trigger.policy, **nature_of(trigger.agent), "overlap": trigger.overlap, "tools": trigger.tools}
            ),
            Intake.load(trigger.policy),
            problem_of(trigger.agent, trigger.policy, trigger.overlap),
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
