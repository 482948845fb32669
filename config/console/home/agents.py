"""The agents: what each did in the last 24 hours, how its last runs ended, what it spent, and when it wakes next."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from textwrap import shorten

from agents import registry
from config.console.home.day import Day, usd
from config.console.parts.links import listing, page
from config.console.parts.moments import appointment
from config.console.parts.sections import Cell
from config.console.runs.last_runs import LastRuns, Strip, triggers_of_agents
from runs.actions.stop_agents import AgentState, all_agents
from runs.states import RunStatus

SHOWN = 12
LENGTH = 110  # characters of a description


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str
    url: str
    about: str
    runs: str
    runs_url: str
    count: int
    failed: int
    percent: str
    failed_url: str
    running: int
    running_url: str
    is_stopped: bool
    strip: Strip
    spent: str
    spent_url: str
    next_at: datetime | None

    @property
    def next_shown(self) -> Cell:
        return appointment(self.next_at) if self.next_at else ""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The agents that are shown, the busiest and most troubled first, and the slugs of the triggers of each."""

    agents: Sequence[AgentState]
    count: int
    triggers: Mapping[str, Sequence[str]]
    are_all_stopped: bool


def known_agents(day: Day) -> Known:
    everything, *found = all_agents()

    def importance(agent: AgentState) -> tuple[int, int, str]:
        counts = day.agents.get(agent.name, Counter())
        return -counts[RunStatus.FAILED], -counts.total(), agent.name

    shown = sorted(found, key=importance)[:SHOWN]
    triggers = triggers_of_agents([one.name for one in shown])
    return Known(agents=shown, count=len(found), triggers=triggers, are_all_stopped=everything.is_stopped)


def agent_rows(known: Known, day: Day, runs: LastRuns, wakes: Mapping[str, datetime]) -> list[Row]:
    return [_row(one, known, day, runs, wakes.get(one.name)) for one in known.agents]


def _row(agent: AgentState, known: Known, day: Day, runs: LastRuns, next_at: datetime | None) -> Row:
    counts = day.agents.get(agent.name, Counter())
    total, failed = counts.total(), counts[RunStatus.FAILED]
    spent: Decimal = day.spent_by(agent.name)
    return Row(
        name=agent.name,
        url=page("runs_agentstop", agent.name),
        about=describe(agent.name),
        runs=f"{total:,}{'+' if any(hour.is_cut for hour in day.today) else ''} run{'' if total == 1 else 's'}",
        runs_url=day.span.runs(agent=agent.name),
        count=total,
        failed=failed,
        percent=f"{100 * failed / total:.0f} % failed" if failed else "",
        failed_url=day.span.runs(agent=agent.name, status__exact=RunStatus.FAILED.value),
        running=agent.running,
        running_url=listing("runs_run", agent=agent.name, status__exact=RunStatus.RUNNING.value),
        is_stopped=agent.is_stopped or known.are_all_stopped,
        strip=runs.of_agent(agent.name),
        spent=usd(spent) if spent else "",
        spent_url=day.span.overnight,
        next_at=next_at,
    )


def describe(name: str) -> str:
    """The first sentence of its docstring."""
    try:
        text = (registry.get(name).body.__doc__ or "").strip()
    except KeyError:
        return ""
    sentence = " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return shorten(sentence, LENGTH, placeholder=" …")
