"""The runs of the last 24 hours and of the day before, by hour, agent and outcome, and the five figures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from agents.kernel.durations import in_words
from agents.kernel.ids import first_id_at
from config.console.home.span import HOURS, Span
from config.console.parts.links import link, page
from config.console.parts.sections import Cell
from config.console.runs.started_filter import STARTED
from runs.budgets.room import amount_in_words
from runs.budgets.spending import Spent, spent_between
from runs.db.sql import fetch
from runs.models import Budget
from runs.states import RunStatus

MOST = 2_000  # runs of an hour that are read
MOST_DECISIONS = MOST_REQUESTS = 20_000  # of a day
WOKEN = """
SELECT hour.number - 1, run.agent, run.status, count(*)
FROM unnest(%(firsts)s::uuid[], %(lasts)s::uuid[]) WITH ORDINALITY hour (first, last, number)
CROSS JOIN LATERAL (
  SELECT agent, status FROM runs_run WHERE id >= hour.first AND id < hour.last ORDER BY id DESC LIMIT %(most)s::int) run
GROUP BY hour.number, run.agent, run.status
"""
# The runs of `StartedFilter`.
LATENCY = """
SELECT count(run.started_at), percentile_cont(0.95) WITHIN GROUP (
  ORDER BY greatest(extract(epoch FROM run.started_at)
    - ('x' || translate(left(run.id::text, 13), '-', ''))::bit(48)::bigint / 1000.0, 0)::float8)
  FILTER (WHERE run.started_at IS NOT NULL)
FROM unnest(%(firsts)s::uuid[], %(lasts)s::uuid[]) WITH ORDINALITY day (first, last, number)
LEFT JOIN LATERAL (
  SELECT id, started_at, parent_id, forked_from_id, replay_id FROM runs_run
  WHERE id >= day.first AND id < day.last ORDER BY id DESC LIMIT %(most)s::int) run
  ON run.parent_id IS NULL AND run.forked_from_id IS NULL AND run.replay_id = '00000000-0000-0000-0000-000000000000'
GROUP BY day.number ORDER BY day.number
"""
QUIET = """
SELECT count(*) FILTER (WHERE decision.outcome = 'quiet'), count(decision.outcome)
FROM unnest(%(firsts)s::uuid[], %(lasts)s::uuid[]) WITH ORDINALITY day (first, last, number)
LEFT JOIN LATERAL (
  SELECT outcome FROM triggers_decision WHERE event_id >= day.first AND event_id < day.last
  ORDER BY event_id DESC LIMIT %(most)s::int) decision ON true
GROUP BY day.number ORDER BY day.number
"""


@dataclass(kw_only=True)
class Hour:
    span: Span
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def runs(self) -> int:
        return self.outcomes.total()

    @property
    def is_cut(self) -> bool:
        return self.runs >= MOST


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number, the same of the day before, and the list of what each counts. `count`: the rows of the list, also where the number
    is an amount or a time."""

    label: str
    value: str
    count: int
    url: str
    before: str
    before_count: int
    before_url: str
    notes: Sequence[Cell] = ()
    level: str = ""


@dataclass(kw_only=True)
class Day:
    """`hours` of both days, the last 24 first."""

    span: Span
    before: Span
    hours: Sequence[Hour]
    agents: dict[str, Counter[str]]
    spent: Sequence[Spent]

    @property
    def today(self) -> Sequence[Hour]:
        return self.hours[:HOURS]

    def counted(self, hours: Sequence[Hour], status: str = "") -> str:
        return f"{self.number(hours, status):,}{'+' if any(hour.is_cut for hour in hours) else ''}"

    def number(self, hours: Sequence[Hour], status: str = "") -> int:
        return sum(hour.outcomes[status] if status else hour.runs for hour in hours)

    def spent_by(self, agent: str) -> Decimal:
        return sum((one.usd for one in self.spent if one.agent == agent), Decimal(0))


def read_day(span: Span, before: Span) -> Day:
    earlier = [Span(hour.start, min(hour.end, before.end)) for hour in before.hours if hour.start < before.end]
    hours = [Hour(span=one) for one in (*span.hours, *earlier)]
    agents: dict[str, Counter[str]] = {}
    for number, agent, status, count in fetch(WOKEN, {**_ids([hour.span for hour in hours]), "most": MOST}):
        hours[number].outcomes[status] += count
        if number < HOURS:
            agents.setdefault(agent, Counter())[status] += count
    spent = spent_between(span.start, span.end, MOST_REQUESTS)
    return Day(span=span, before=before, hours=hours, agents=agents, spent=spent)


def figures(day: Day, causes: Cell) -> list[Figure]:
    return [_runs(day), _failed(day, causes), _quiet(day), _spent(day), _latency(day)]


def _runs(day: Day) -> Figure:
    return Figure(
        label="runs in 24 h",
        value=day.counted(day.today),
        count=day.number(day.today),
        url=day.span.runs(),
        before=day.counted(day.hours[HOURS:]),
        before_count=day.number(day.hours[HOURS:]),
        before_url=day.before.runs(),
    )


def _failed(day: Day, causes: Cell) -> Figure:
    failed = {"status__exact": RunStatus.FAILED.value}
    value = day.counted(day.today, RunStatus.FAILED)
    return Figure(
        label="of them failed",
        value=value,
        count=day.number(day.today, RunStatus.FAILED),
        url=day.span.runs(**failed),
        before=day.counted(day.hours[HOURS:], RunStatus.FAILED),
        before_count=day.number(day.hours[HOURS:], RunStatus.FAILED),
        before_url=day.before.runs(**failed),
        notes=[causes] if causes else (),
        level="bad" if value.strip("0+") else "",
    )


def _quiet(day: Day) -> Figure:
    (now, read), (then, read_then) = fetch(QUIET, {**_ids([day.span, day.before]), "most": MOST_DECISIONS})
    return Figure(
        label="quiet wakes, without a run",
        value=f"{now:,}{'+' if read >= MOST_DECISIONS else ''}",
        count=now,
        url=day.span.overnight,
        before=f"{then:,}{'+' if read_then >= MOST_DECISIONS else ''}",
        before_count=then,
        before_url=day.before.overnight,
    )


def _spent(day: Day) -> Figure:
    before = spent_between(day.before.start, day.before.end, MOST_REQUESTS)
    by_agent: Counter[str] = Counter()
    for one in day.spent:
        by_agent[one.agent] += one.usd  # type: ignore[assignment]
    most = [
        link(day.span.overnight, f"most: {agent} {usd(Decimal(amount))}")
        for agent, amount in by_agent.most_common(1)
        if amount
    ]
    caps = Budget.objects.filter(scope="installation", period="day", measure="usd", cap__isnull=False)
    cap = [
        link(page("runs_budget", pk), f"cap {usd(cap)} a day")
        for pk, cap in caps.values_list("pk", "cap")[:1]
        if cap is not None
    ]
    return Figure(
        label="for models",
        value=usd(sum((one.usd for one in day.spent), Decimal(0))),
        count=sum(one.requests for one in day.spent),
        url=day.span.overnight,
        before=usd(sum((one.usd for one in before), Decimal(0))),
        before_count=sum(one.requests for one in before),
        before_url=day.before.overnight,
        notes=[*cap, *most],
    )


def _latency(day: Day) -> Figure:
    found = fetch(LATENCY, {**_ids([day.span, day.before]), "most": STARTED})
    (count, now), (count_then, then) = ((count, _seconds(seconds)) for count, seconds in found)
    return Figure(
        label="event → start, p95",
        value=now,
        count=count,
        url=day.span.started,
        before=then,
        before_count=count_then,
        before_url=day.before.started,
    )


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds:.1f} s" if seconds < 10 else in_words(timedelta(seconds=round(seconds)))


def usd(amount: Decimal) -> str:
    return amount_in_words("usd", amount.quantize(Decimal("0.01")) if amount >= Decimal("0.01") else amount)


def _ids(spans: Sequence[Span]) -> dict[str, list[object]]:
    return {
        "firsts": [first_id_at(span.start) for span in spans],
        "lasts": [first_id_at(span.end) for span in spans],
    }
