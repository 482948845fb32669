"""`run.checklist`: the items that are due together, and how the look at each ended."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from agents.checklists.due import due_together, first_due, next_due
from agents.exceptions import describe
from agents.guards.storable import storable
from agents.journal.protocol import Place
from agents.kernel.effects import Effects, ItemLook
from agents.state import Leave, Value

if TYPE_CHECKING:
    from agents.models import ChecklistItem

ItemOutcome = Literal["ok", "news", "failed"]
OUTCOMES = ("ok", "news", "failed")
TEXT_LENGTH = 1000


@dataclass(frozen=True, kw_only=True)
class DueItem:
    """An item to look at now. `last_outcome` is "" before its first look; `failures` counts those in a row. `is_tainted`: the agent acts
    by a person's own connections, and that person has saved no checklist with this item."""

    id: int
    text: str
    every: timedelta | None
    last_outcome: str
    last_checked_at: datetime | None
    failures: int
    is_tainted: bool = False

    def dump(self) -> dict[str, Any]:
        told = {name: value for name, value in vars(self).items() if name != "is_tainted" or value}
        return {
            **told,  # a version before knows no item that is tainted
            "every": self.every and self.every.total_seconds(),
            "last_checked_at": self.last_checked_at and self.last_checked_at.isoformat(),
        }

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> "DueItem":
        every, last = stored["every"], stored["last_checked_at"]
        return cls(
            **{
                **stored,
                "every": None if every is None else timedelta(seconds=every),
                "last_checked_at": last and datetime.fromisoformat(last),
            }
        )


# Holds items for a run, or finds items that no run holds: returns those of the given items that the run may check.
HoldItems = Callable[[Sequence[DueItem]], list[DueItem]]


@dataclass(frozen=True)
class Checked:
    """The outcome of checking an item: "ok" (nothing to report), "news" or "failed"; `text` has details, at most 1,000
    characters.
    """

    item: int
    outcome: ItemOutcome
    text: str = ""

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise ValueError(f"outcome {self.outcome!r} of a checklist's item is not one of {', '.join(OUTCOMES)}")


@dataclass(frozen=True, kw_only=True)
class ChecklistState:
    """A checklist at an instant: its items that are due, how many it has in all, and when an item with an interval is due. `held`: how
    many others are due, which a run looks at."""

    due: Sequence[DueItem]
    items: int
    held: int = 0
    awake: Sequence[DueItem] = ()  # neither paused nor silenced, due or not
    now: datetime | None = None
    next_at: datetime | None = None
    silenced_until: datetime | None = None


def read_checklist(agent: str, trigger: str) -> ChecklistState:
    """Read the checklist of a trigger, else of its agent, by the clock of the database."""
    from django.db.models.functions import Now

    from agents.models import Checklist

    found = Checklist.objects.filter(agent=agent, trigger__in=["", trigger]).order_by("-trigger").annotate(now=Now())
    checklist = found.first()
    if checklist is None:
        return ChecklistState(due=(), items=0)
    now = checklist.now
    items = list(checklist.items.all())
    if checklist.silenced_until and checklist.silenced_until > now:
        until = checklist.silenced_until
        return ChecklistState(due=(), items=len(items), now=now, next_at=until, silenced_until=until)
    awake = [item for item in items if item.paused_at is None]
    for item in awake:
        item.due_at = max(item.due_at, item.silenced_until or item.due_at)
    due = [_seen(item) for item in due_together(awake, now)]
    next_at = first_due([item for item in awake if item.every])
    return ChecklistState(due=due, items=len(items), awake=[_seen(item) for item in awake], now=now, next_at=next_at)


def _seen(item: "ChecklistItem") -> DueItem:
    return DueItem(
        id=item.pk,
        text=item.text,
        every=item.every,
        last_outcome=item.last_outcome,
        last_checked_at=item.last_checked_at,
        failures=item.failures_in_a_row,
    )


def _dumped(items: Sequence[DueItem], agent: str) -> list[dict[str, Any]]:
    """The items as a body is given them: what another person has written taints an agent that acts by a person's own connections."""
    from agents.models import ChecklistRevision, PromptAgentVersion

    if not items or not (acts_for := PromptAgentVersion.acts_for(agent)):
        return [item.dump() for item in items]
    own = ChecklistRevision.objects.filter(checklist__items=items[0].id, by=f"admin:{acts_for}")
    saved = own.exclude(definition__has_key="vouches").first()
    vouched = {(one["id"], one["text"]) for one in saved.definition["items"]} if saved else set()
    return [replace(item, is_tainted=(item.id, item.text) not in vouched).dump() for item in items]


class ChecklistView:
    """The checklist as a gate sees it. `free` leaves out the items that a run looks at."""

    def __init__(self, agent: str, trigger: str, free: HoldItems) -> None:
        self._agent = agent
        self._trigger = trigger
        self._free = free

    def state(self) -> ChecklistState:
        seen = read_checklist(self._agent, self._trigger)
        free = self._free(seen.due)
        return replace(seen, due=free, held=len(seen.due) - len(free))

    def due(self) -> list[DueItem]:
        """The items that are due together and that no run looks at."""
        return list(self.state().due)


class RunChecklist:
    """The checklist as a body sees it: read once, and written with the run or the step. `hold` keeps other runs from the items that
    this one looks at."""

    def __init__(
        self,
        agent: str,
        trigger: str,
        run_id: UUID,
        *,
        leave: Leave,
        value: Value,
        effects: Callable[[], Effects],
        hold: HoldItems,
    ) -> None:
        self._agent = agent
        self._trigger = trigger
        self._run_id = run_id
        self._leave = leave
        self._value = value
        self._effects = effects
        self._hold = hold

    def due(self) -> list[DueItem]:
        """The items that are due together and that no other run looks at; in a durable run the same on every replay. Until this run
        records how its look at them ended, or ends itself, no other run is given them."""
        found = self._value(
            "checklist",
            lambda: _dumped(self._hold(read_checklist(self._agent, self._trigger).due), self._agent),
        )
        return [DueItem.load(item) for item in found]

    def awake(self) -> list[DueItem]:
        """The items that are neither paused nor silenced, due or not."""
        found = self._value(
            "checklist awake", lambda: _dumped(read_checklist(self._agent, self._trigger).awake, self._agent)
        )
        return [DueItem.load(item) for item in found]

    def is_empty(self) -> bool:
        """Has the checklist no item at all, due or not?"""
        return not self._value("checklist items", lambda: read_checklist(self._agent, self._trigger).items)

    def next_in(self) -> timedelta | None:
        """The time until an item with an interval of its own is due; None: there is none."""
        found = self._value("checklist next", lambda: _seconds_left(read_checklist(self._agent, self._trigger)))
        return None if found is None else timedelta(seconds=found)

    def record(self, *checked: Checked) -> None:
        """Record how the look at each of these items ended; each is due again at the next time of its own interval."""
        written = [
            replace(one, text=str(storable(one.text, "the text of a checklist's item"))[:TEXT_LENGTH])
            for one in checked
        ]
        if written:
            self._leave(Place(name="checked", is_numbered=True), lambda step: self._write(written))

    def _write(self, checked: Sequence[Checked]) -> None:
        self._effects().looks.extend(_write(checked, self._run_id))

    def each(self, check: Callable[[DueItem], str | None]) -> list[Checked]:
        """Call `check` for each due item, and record how each ended. `check` returns a text if there is something to say; an
        exception fails its item alone."""
        found = [_checked(item, check) for item in self.due()]
        self.record(*found)
        return found


def _seconds_left(seen: ChecklistState) -> float | None:
    if seen.next_at is None or seen.now is None:
        return None
    return max((seen.next_at - seen.now).total_seconds(), 0.0)


def _checked(item: DueItem, check: Callable[[DueItem], str | None]) -> Checked:
    from django.db import connection, transaction

    try:
        if connection.in_atomic_block:
            with transaction.atomic():  # a failed statement must not spoil the transaction of the run
                said = check(item)
        else:
            said = check(item)
    except Exception as error:
        return Checked(item.id, "failed", describe(error)[:TEXT_LENGTH])
    return Checked(item.id, "news", said) if said else Checked(item.id, "ok")


def _write(checked: Sequence[Checked], run_id: UUID) -> Iterator[ItemLook]:
    """Write them; yields those that failed, or succeeded after a failure."""
    from django.db.models.functions import Now

    from agents.models import ChecklistItem

    by_item = {one.item: one for one in checked}
    # An item that was deleted meanwhile is left out.
    for item in (
        ChecklistItem.objects.filter(id__in=by_item).order_by("id").select_for_update(of=("self",)).annotate(now=Now())
    ):
        one = by_item[item.pk]
        if one.outcome == "failed" or item.failures_in_a_row:
            error = (one.text or "no reason was given") if one.outcome == "failed" else ""
            yield ItemLook(item=item.pk, text=item.text, error=error)
        item.last_outcome, item.last_text, item.last_checked_at, item.last_run_id = (
            one.outcome, one.text, item.now, run_id,
        )  # fmt: skip
        item.failures_in_a_row = item.failures_in_a_row + 1 if one.outcome == "failed" else 0
        item.due_at = next_due(item.due_at, item.every, item.now)
        item.held_by = None if item.held_by == run_id else item.held_by
        item.save(
            update_fields=[
                "last_outcome", "last_text", "last_checked_at", "last_run_id", "failures_in_a_row", "due_at", "held_by",
            ]
        )  # fmt: skip
