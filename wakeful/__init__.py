"""What a project writes its agents with: `from wakeful import AgentRun, agent, emit, on`. The import touches no database and needs no
settings. The wheel has the rooms of this tree in this package: `agents` here is `wakeful.agents` there."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents import (
        Agent,
        AgentRun,
        Answer,
        ApprovalExpired,
        AsyncAgentRun,
        Budget,
        Checked,
        ChildFailed,
        DueItem,
        Ended,
        Event,
        Fire,
        GateRun,
        Heartbeat,
        Note,
        Permanent,
        Quiet,
        Report,
        Retry,
        SessionBusy,
        StepFailed,
        agent,
        on,
        tool,
    )
    from triggers.django_tasks.backend import TaskBackend as TaskBackend
    from triggers.emit import emit

__all__ = [
    "Agent",
    "AgentRun",
    "Answer",
    "ApprovalExpired",
    "AsyncAgentRun",
    "Budget",
    "Checked",
    "ChildFailed",
    "DueItem",
    "Ended",
    "Event",
    "Fire",
    "GateRun",
    "Heartbeat",
    "Note",
    "Permanent",
    "Quiet",
    "Report",
    "Retry",
    "SessionBusy",
    "StepFailed",
    "agent",
    "emit",
    "on",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Read on first use: the processes that evaluate the texts of strangers import a module of this package, and no agent."""
    if name == "TaskBackend":
        return _task_backend()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import agents
    import triggers.emit

    return getattr(triggers.emit if name == "emit" else agents, name)


def _task_backend() -> Any:
    """Of `django.tasks`, which Django has from 6.0 on; so it is not among the names above."""
    try:
        import django.tasks  # noqa: F401
    except ModuleNotFoundError:
        from django import get_version

        raise ImportError(
            f"wakeful.TaskBackend is a backend of django.tasks, which Django has from 6.0 on; this is Django {get_version()}. "
            "Without it, emit an event (wakeful.emit) that an agent waits for."
        ) from None
    from triggers.django_tasks.backend import TaskBackend

    return TaskBackend
