"""Agents that an operator has stopped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from runs.actions.stop_agents import EVERY
from runs.sign import WARNING, Problem, Sign, age, span

SQL = f"SELECT agent, stopped_by AS by, reason, {age('stopped_at')} AS seconds FROM runs_agentstop ORDER BY agent"  # noqa: S608


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A stopped agent; `*` stands for all."""

    agent: str
    by: str
    reason: str
    seconds: float


def problems(rows: Sequence[Stop]) -> Iterator[Problem]:
    for stop in rows:
        subject = "All agents have" if stop.agent == EVERY else f"Agent {stop.agent} has"
        yield Problem(
            name=f"stopped:{stop.agent}",
            severity=WARNING,
            text=f"{subject} been stopped for {span(stop.seconds)}, by {stop.by}"
            f"{': ' + stop.reason if stop.reason else ''}. Events are accepted and become runs, but no run starts.",
            remedy=f"Start again when the reason is gone: `manage.py start "
            f"{'--all' if stop.agent == EVERY else f'--agent {stop.agent}'}`, or on the Agents page.",
            lasted=timedelta(seconds=stop.seconds),
            alarm_after=settings.WAKEFUL_ALARM_PAUSED,
        )


STOPPED_AGENTS = Sign(name="stopped_agents", sql=SQL, row=Stop, problems=problems, kinds=("stopped",))
