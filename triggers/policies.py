from dataclasses import asdict
from typing import Any

from agents.agent import Agent
from runs.policy import Policy


def policy_of(agent: Agent) -> dict[str, Any]:
    """What an agent's declaration changes of the default policy, as a trigger stores it."""
    declared = {
        "queue": agent.queue,
        "priority": agent.priority,
        "timeout": agent.timeout.total_seconds() if agent.timeout else Policy.timeout,
        "retries": agent.retries,
        "pause_after": agent.pause_after,
    }
    defaults = asdict(Policy())
    return {name: value for name, value in declared.items() if value != defaults[name]}
