"""Compares each hour with the same hour of the days before. A model is called, to find the reason, only if an hour is
unusual.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from math import sqrt
from typing import TYPE_CHECKING, Any

from django.conf import settings
from pydantic import BaseModel, Field

from agents import AgentRun, Budget, Fire, GateRun, Quiet, StepFailed, agent, on
from agents.kernel.installation import Finished, facts

if TYPE_CHECKING:
    from pydantic_ai import Agent as LlmAgent

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DAYS, KNOWN = 7, 3  # compared days; of these, so many must have had runs at all
SLACK = 5  # runs more or less than usual that are never unusual
TOLD_AGAIN = timedelta(hours=6)


class Explanation(BaseModel):
    text: str = Field(max_length=1500, description="the likely reason, and what to look at first, in a few sentences")


def unusual(run: GateRun) -> Fire | Quiet:
    """Fires when an agent ran or failed much more or less often in the last full hour than usual."""
    now = run.now()
    until = now.replace(minute=0, second=0, microsecond=0)
    told: dict[str, str] = {
        what: at for what, at in (run.last or {}).items() if now - datetime.fromisoformat(at) < TOLD_AGAIN
    }
    last = facts.finished(until - HOUR, until)
    before = [facts.finished(until - HOUR - day * DAY, until - day * DAY) for day in range(1, DAYS + 1)]
    found = [one for one in anomalies(last, before) if f"{one['agent']} {one['measure']}" not in told]
    if not found:
        return Quiet("the last hour was as usual, or was already reported")
    state = {**told, **{f"{one['agent']} {one['measure']}": now.isoformat() for one in found}}
    return Fire("the last hour was unusual", data=found, state=state)


def anomalies(last: Iterable[Finished], before: Sequence[Sequence[Finished]]) -> list[dict[str, Any]]:
    """The counts that differ by more than three standard deviations (square roots of the count) and SLACK."""
    days = [day for day in before if day]
    if len(days) < KNOWN:
        return []
    now = {one.agent: one for one in last}
    agents = sorted(now.keys() | {one.agent for day in days for one in day})
    found = []
    for name in agents:
        for measure in ("runs", "failed"):
            counts = [_count(day, name, measure) for day in days]
            usual, seen = sum(counts) / len(counts), _count(now.values(), name, measure)
            if abs(seen - usual) > 3 * sqrt(usual) + SLACK:
                found.append({"agent": name, "measure": measure, "now": seen, "usual": round(usual, 1)})
    return found[:20]


def _count(finished: Iterable[Finished], agent: str, measure: str) -> int:
    return sum(getattr(one, measure) for one in finished if one.agent == agent)


@agent(
    "anomaly-explainer",
    durable=True,
    triggers=[on.cron("5 * * * *", catch_up="skip")],
    gate=unusual,
    budget=Budget(run_usd="0.10", day_usd="1"),
    tools=["failed_runs"],
)
def anomaly_explainer(run: AgentRun) -> Any:
    """Notifies people when an agent runs or fails much more or less often than usual, with a model's guess at the reason."""
    found: list[Mapping[str, Any]] = run.fired.data if run.fired else []
    lines = [in_words(one) for one in found]
    if not lines:
        return None
    guess = ""
    if run.step("is there a model", lambda: bool(settings.WAKEFUL_MODEL), effect="read"):
        try:
            guess = run.llm(explainer(), "\n".join(lines), deps=run).output.text
        except StepFailed as error:
            run.log.warning("anomaly.unexplained", error=str(error))
    run.notify("\n".join(filter(None, [*lines, guess and f"Likely reason: {guess}"])), topic="anomaly")
    return {"found": found, "explained": bool(guess)}


def in_words(one: Mapping[str, Any]) -> str:
    verb = "failed" if one["measure"] == "failed" else "ran"
    return f"{one['agent']} {verb} {one['now']} times in the last hour; usual at this time of day: {one['usual']:g}."


@cache
def explainer() -> "LlmAgent[Any, Explanation]":
    # Importing pydantic-ai takes most of a second, and only a worker that asks a model needs it.
    from pydantic_ai import Agent as LlmAgent

    from agents.tools import toolbox

    return LlmAgent(
        name="anomaly-explainer",
        output_type=Explanation,
        tools=[toolbox.get("failed_runs")],
        instructions=(
            "You are told how the last hour of an installation of agents differs from the same hour of other days. Say the "
            "likely reason in a few plain sentences, and what to look at first. Look at the failed runs if some failed. If "
            "nothing shows the reason, say so."
        ),
    )
