"""A trigger's policy: declared by its agent, and validated."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agents import registry
from agents.agent import Agent
from agents.kernel.report import Report, read_reports
from agents.prompt_agents import catalog
from runs.models.policy import NATURE, REPORTS, Policy, declared_by
from triggers.exceptions import RuleError
from triggers.matching.flow_control import Intake
from triggers.models import Trigger

MOST_AT_ONCE = 1000
INTAKE = {"rate": "", "overflow": "delay", "debounce": 0, "batch": 0, "max_wait": 0, "own_changes": False}
OTHERWISE_SAID = frozenset(
    {"overlap", "tools", *NATURE}
)  # stored in a column of the trigger, or defined by the agent's code
DEFAULTS = (
    {name: value for name, value in asdict(Policy()).items() if name not in OTHERWISE_SAID} | INTAKE | {REPORTS: []}
)


def policy_of(agent: Agent) -> dict[str, Any]:
    """The differences between an agent's declaration and the default policy, as a trigger stores them."""
    declared = {
        **declared_by(agent),
        "rate": agent.rate,
        "overflow": agent.overflow,
        "debounce": agent.debounce.total_seconds() if agent.debounce else 0,
        "batch": agent.batch,
        "max_wait": agent.max_wait.total_seconds() if agent.max_wait else 0,
        "own_changes": False,  # values that the declaration of a trigger sets
    }
    return {name: value for name, value in declared.items() if value != DEFAULTS[name]}


def policy_for(agent: str) -> dict[str, Any]:
    """The initial policy of a trigger of this agent. RuleError for the field `agent` names the installed agents."""
    catalog.refresh(at_once=True)
    try:
        return policy_of(registry.get(agent))
    except KeyError:
        known = ", ".join(known.name for known in registry.all_agents()) or "none"
        raise RuleError(f"no agent {agent!r} is installed; use one of: {known}", field="agent") from None


def policy_with(policy: Mapping[str, Any], reports: Sequence[Report]) -> dict[str, Any]:
    """A trigger's policy with these reports instead of its own."""
    others = {name: value for name, value in policy.items() if name != REPORTS}
    return {**others, REPORTS: [report.dump() for report in reports]} if reports else others


def check_policy(policy: Mapping[str, Any], *, overlap: str, key_limit: int) -> None:
    """Raises ValueError for the first value that is wrong, alone or in combination."""
    if unknown := sorted(set(policy) - set(DEFAULTS)):
        raise ValueError(f"policy has unknown fields: {', '.join(unknown)}; use {', '.join(sorted(DEFAULTS))}")
    Policy.load(policy)
    Intake.load(policy)
    read_reports(policy.get(REPORTS, []))
    if overlap not in Trigger.Overlap.values:
        raise ValueError(f"overlap is {overlap!r}; use one of {', '.join(Trigger.Overlap.values)}")
    if isinstance(key_limit, bool) or not isinstance(key_limit, int) or not 1 <= key_limit <= MOST_AT_ONCE:
        raise ValueError(f"key_limit is {key_limit!r}; use a whole number from 1 to {MOST_AT_ONCE}")
    if overlap == Trigger.Overlap.CANCEL_PREVIOUS and key_limit != 1:
        raise ValueError("key_limit must be 1 with overlap cancel_previous, which keeps one run per key")
