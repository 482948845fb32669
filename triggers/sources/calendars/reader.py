"""The settings that all kinds of calendars share, and how a poll of one becomes events."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from agents.kernel.durations import in_words, parse_duration
from runs.db.sql import database_now
from triggers.sources.calendars import differences, starts
from triggers.sources.calendars.differences import Comparing, Differences
from triggers.sources.calendars.entry import Look, View, instant
from triggers.sources.calendars.starts import Plan, Terms
from triggers.sources.continuity import Gaps
from triggers.sources.kind import Case, Group
from triggers.sources.polling.novelty import digest
from triggers.sources.polling.poller import ALL, P, Polled, Poller, PollingReader, PollSettings
from triggers.sources.runner import Assignment, Poison
from triggers.sources.settings import setting

BOTH, ONLY_STARTS, ONLY_CHANGES = "all", "starts", "changes"
AHEAD = timedelta(days=7)  # so long before it is due, a start is known
VIEWED = timedelta(days=1)  # after which the next days are looked at, also if nothing has changed
LONGEST_BEFORE, LONGEST_LATE = timedelta(days=7), timedelta(days=1)
TYPES = "calendar.created, calendar.changed, calendar.cancelled and calendar.starts"
GAPS = Gaps(are_seen=False, how="an event that is made and deleted between two looks leaves no trace.")


def at_most(longest: timedelta) -> Any:
    def check(value: str) -> str:
        try:
            return "" if timedelta() <= parse_duration(value) <= longest else f"must be from 0s to {in_words(longest)}"
        except ValueError as error:
            return f"is wrong: {error}"

    return check


@dataclass(frozen=True, kw_only=True)
class CalendarSettings(PollSettings):
    """Which events a calendar gives."""

    events: str = setting(
        BOTH,
        "Events",
        "“starts”: calendar.starts before each event; “changes”: calendar.created, calendar.changed and calendar.cancelled; “all”.",
        choices=(BOTH, ONLY_STARTS, ONLY_CHANGES),
    )
    before: str = setting(
        "15m", "Before the start", "So long before it starts, calendar.starts is recorded; from 0s to 7d.",
        check=at_most(LONGEST_BEFORE),
    )  # fmt: skip
    late: str = setting(
        "5m",
        "Of use until",
        "So long after its start, calendar.starts is still of use, if Wakeful was down. Later it is calendar.missed.",
        check=at_most(LONGEST_LATE),
    )
    whole_days: bool = setting(False, "Whole days", "Whole days start, too: at midnight.")

    @property
    def terms(self) -> Terms:
        return Terms(before=parse_duration(self.before), late=parse_duration(self.late), whole_days=self.whole_days)


class Calendar(Poller[P]):
    """A calendar that is polled."""

    group = Group.MESSAGES
    docs = "calendars"
    gaps = GAPS

    def case_of(self, settings: Mapping[str, Any]) -> Case:
        wanted = settings.get("events", BOTH)
        return next((case for case in self.cases if case.name == wanted), self.cases[-1])


def cases(*first: str, more: Sequence[str] = ()) -> tuple[Case, ...]:
    """The cases of a kind; `first` are the settings that it cannot do without."""
    return (
        Case(
            name=ONLY_STARTS,
            label="Before each event starts, such as for a brief",
            fields=(*first, "before"),
            more=("every", "late", "whole_days", *more),
            fixed={"events": ONLY_STARTS},
        ),
        Case(
            name=ONLY_CHANGES,
            label="When an event is made, changed or cancelled",
            fields=first,
            more=("every", "begin_with", *more),
            fixed={"events": ONLY_CHANGES},
        ),
        Case(
            name=BOTH,
            label="Both",
            fields=(*first, "before"),
            more=("every", "late", "whole_days", "begin_with", *more),
            fixed={"events": BOTH},
        ),
    )


class CalendarReader(PollingReader):
    """Compares each look with what is recorded. The state has the calendar's cursor, and the starts that wait in the outbox."""

    def __init__(self, assignment: Assignment[Any], *, target: str) -> None:
        # Without entries that are recorded, the cursor would be of no use.
        records = assignment.settings.events != ONLY_STARTS
        super().__init__(assignment, target=f"{target} {records}")

    @abstractmethod
    def look(self, cursor: Any, view: View | None, now: datetime) -> Look:
        """What has changed since the cursor, None at first; and, if there is a view or something has changed, the occurrences in
        it. Raises SourceError."""

    def poll(self, state: dict[str, Any]) -> Polled:
        now = database_now()
        terms = digest(repr((self.settings.events, self.settings.terms, self.zone)))
        has_new_terms = state.get("terms") != terms
        view = self._view(state, now, has_new_terms)
        look = self.look(state.get("cursor"), view, now)
        is_first = not state
        since = instant(state["since"]) if state else now
        found = self._differences(look, now, since, is_first, state)
        plan = self._plan(look, {} if has_new_terms else state.get("starts", {}), now)
        if has_new_terms:
            plan.drop = None
        after = {
            **state,
            "since": since.isoformat(),
            "terms": terms,
            "starts": plan.waiting,
            "number": state.get("number", int(now.timestamp())) + bool(found.messages),
        }
        if look.occurrences is not None:
            after |= {"viewed_at": now.isoformat(), "is_cut": len(plan.waiting) >= starts.MOST}
        if not found.has_more:
            after["cursor"] = look.cursor
        source_id = self.source_id
        left_out = [Poison(id=id, reason=reason) for id, reason in (look.left_out or {}).items()]

        def keep() -> None:
            differences.write(source_id, found, now, clear=is_first)
            starts.write(source_id, plan)

        has_changes = is_first or found.put or found.drop or plan.put or plan.drop or plan.drop is None
        return Polled(
            state=after,
            messages=[*found.messages, *left_out],
            has_more=found.has_more,
            keep=keep if has_changes else None,
        )

    @property
    def source_id(self) -> UUID:
        id = self.assignment.source_id
        if id is None:
            raise RuntimeError("the calendar has no source")
        return id

    @property
    def zone(self) -> str:
        """The zone of times that name none."""
        return "UTC"

    def _view(self, state: Mapping[str, Any], now: datetime, has_new_terms: bool) -> View | None:
        """None: the calendar need not be asked for occurrences unless something has changed."""
        if self.settings.events == ONLY_CHANGES:
            return None
        if has_new_terms or "viewed_at" not in state:
            return self.whole_view(now)
        left = sum(instant(start) > now for start, _ in state.get("starts", {}).values())
        runs_out = state.get("is_cut", False) and left < starts.MOST / 2
        # A time to come is of a clock that was wrong.
        is_due = not timedelta() <= now - instant(state["viewed_at"]) <= VIEWED
        return self.whole_view(now) if is_due or runs_out else None

    def whole_view(self, now: datetime) -> View:
        return View(start=now, until=now + self.settings.terms.before + AHEAD + VIEWED)

    def wants_starts(self) -> bool:
        return bool(self.settings.events != ONLY_CHANGES)

    def _differences(
        self, look: Look, now: datetime, since: datetime, is_first: bool, state: Mapping[str, Any]
    ) -> Differences:
        if look.entries is None or self.settings.events == ONLY_STARTS:
            return Differences()
        # After a batch that was full, the rest is of the same first look.
        begins = is_first or "cursor" not in state
        by = Comparing(
            source_id=self.source_id,
            now=now,
            since=since,
            begins=begins,
            is_first=begins and self.settings.begin_with != ALL,
            is_blank=is_first,
            revision=str(state.get("number", int(now.timestamp()))),
        )
        return differences.compare(look, by)

    def _plan(self, look: Look, waiting: Mapping[str, Sequence[str]], now: datetime) -> Plan:
        if look.occurrences is None:
            still = {key: list(one) for key, one in waiting.items() if instant(one[0]) > now}
            return Plan(waiting=still)
        return starts.plan(self.source_id, waiting, look.occurrences, self.settings.terms, now)
