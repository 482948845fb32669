"""The agents: what each did in the last 24 hours, how its last runs ended, what it spent, and when it wakes next."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from agents import registry
from config.console.home.day import Day, usd
from config.console.home.last_runs import LastRuns, Strip
from config.console.parts.links import listing
from config.console.parts.moments import appointment
from config.console.parts.sections import Cell
from runs.actions.stop_agents import AgentState, all_agents
from runs.states import RunStatus
from triggers.models import Trigger

SHOWN = 12
TRIGGERS = 100  # of the shown agents
LENGTH = 110  # characters of a description


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str
    url: str
    about: str
    runs: str
    runs_url: str
    failed: str
    failed_url: str
    running: int
    is_stopped: bool
    strip: Strip
    spent: str
    next_at: datetime | None

    @property
    def next_shown(self) -> Cell:
        return appointment(self.next_at) if self.next_at else ""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The agents that are shown, the busiest and most troubled first, and the slugs of their triggers."""

    agents: Sequence[AgentState]
    count: int
    slugs: Sequence[str]
    are_all_stopped: bool


def known_agents(day: Day) -> Known:
    everything, *found = all_agents()

    def importance(agent: AgentState) -> tuple[int, int, str]:
        counts = day.agents.get(agent.name, Counter())
        return -counts[RunStatus.FAILED], -counts.total(), agent.name

    shown = sorted(found, key=importance)[:SHOWN]
    slugs = (
        Trigger.objects.filter(agent__in=[one.name for one in shown]).order_by("slug").values_list("slug", flat=True)
    )
    return Known(
        agents=shown, count=len(found), slugs=list(slugs[:TRIGGERS]), are_all_stopped=everything.is_stopped
    )  # fmt: skip


def agent_rows(known: Known, day: Day, runs: LastRuns, wakes: Mapping[str, datetime]) -> list[Row]:
    return [_row(one, known, day, runs, wakes.get(one.name)) for one in known.agents]


def _row(agent: AgentState, known: Known, day: Day, runs: LastRuns, next_at: datetime | None) -> Row:
    counts = day.agents.get(agent.name, Counter())
    total, failed = counts.total(), counts[RunStatus.FAILED]
    spent: Decimal = day.spent_by(agent.name)
    return Row(
        name=agent.name,
        url=listing("runs_run", agent=agent.name),
        about=describe(agent.name),
        runs=f"{total:,}{'+' if any(hour.is_cut for hour in day.today) else ''} run{'' if total == 1 else 's'}",
        runs_url=day.span.runs(agent=agent.name),
        failed=f"{100 * failed / total:.0f} % failed" if failed else "",
        failed_url=day.span.runs(agent=agent.name, status__exact=RunStatus.FAILED.value),
        running=agent.running,
        is_stopped=agent.is_stopped or known.are_all_stopped,
        strip=runs.of_agent(agent.name),
        spent=usd(spent) if spent else "",
        next_at=next_at,
    )


def describe(name: str) -> str:
    """The first sentence of its docstring."""
    try:
        text = (registry.get(name).body.__doc__ or "").strip()
    except KeyError:
        return ""
    sentence = " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return sentence if len(sentence) <= LENGTH else f"{sentence[: LENGTH - 1]}…"
