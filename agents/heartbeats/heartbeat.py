"""A heartbeat agent: it looks at a checklist from time to time, and speaks up if a person should know something.

    Heartbeat("ops-watch", every="30m", pacing=("10m", "4h"), active_hours="07:00-22:00", tz="Europe/Vienna",
              checklist={"Are there failed runs?": None, "Is the newest backup older than a day?": "6h"},
              tools=[failed_runs, newest_backup])

It is an ordinary durable agent. At each wake its gate looks for due items, and then calls the author's own gate; if
nothing is due or that gate is quiet, there is no run and no model call. The body makes one call of `run.llm` for all
items that are due, records how each ended, and notifies a person if the verdict has `notify` set. The model gets the
error of a failed tool, so only the items that need the tool fail.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from agents.agent import Agent, agent
from agents.budget import Budget
from agents.exceptions import DeclarationError, Permanent
from agents.gate import Gate
from agents.heartbeats.watch import Watch
from agents.on import Length, heartbeat
from agents.sessions.names import checked_name


class Heartbeat(Watch):
    """Declares the agent `name`, which is then `agent` of this object.

    `every` is its interval; with `pacing` (shortest, longest) the verdict and the next due item move its next wake.
    `active_hours` ("mon-fri 08:00-18:00") are in the zone `tz`. `model` names a model ("openai:gpt-5.2"); default:
    WAKEFUL_MODEL. `tools` are functions, `pydantic_ai.Tool`s or names of the toolbox. `checklist` is declared as for `@agent`;
    without any item the agent looks by its `instructions` alone. `gate` is called where an item is due. `session` names
    the conversation that its runs go on with; without it each begins a fresh one. With `by_thread` a run that a message woke goes on
    with the conversation of its thread (`run.thread`). Other options are those of `@agent`.
    Raises DeclarationError.
    """

    def __init__(
        self,
        name: str,
        *,
        every: Length,
        pacing: tuple[Length, Length] | None = None,
        active_hours: str = "",
        tz: str = "",
        model: str | None = None,
        tools: Sequence[Callable[..., Any] | Any] = (),
        session: str = "",
        by_thread: bool = False,
        instructions: str = "",
        checklist: Mapping[str, str | float | timedelta | None] | Sequence[str] = (),
        gate: Gate | None = None,
        budget: Budget | None = None,
        slug: str = "",
        **options: Any,
    ) -> None:
        try:
            checked_name(session or "fresh")
        except Permanent as error:
            raise DeclarationError(f"agent {name!r}: {error}") from None
        super().__init__(
            name,
            model=model,
            tools=tools,
            session=session,
            by_thread=by_thread,
            instructions=instructions,
            pacing=pacing,
            gate=gate,
        )
        # The registry distinguishes two agents of one name by the modules of their bodies.
        self.__module__ = sys._getframe(1).f_globals.get("__name__", __name__)
        self.__qualname__ = f"Heartbeat({name!r})"
        policy: dict[str, Any] = {"active_hours": active_hours} if active_hours else {}
        trigger = heartbeat(every, pace=pacing, tz=tz, slug=slug, **policy)
        declare = agent(
            name,
            triggers=[trigger],
            durable=True,
            gate=self.ask,
            checklist=checklist,
            budget=budget,
            # A turn that waits for a person or for budget is not taken a second time beside it.
            **{"hold_key": True, **options},
        )
        self.agent: Agent = declare(self)

    @property
    def source(self) -> str:
        """The parts that define the heartbeat's behaviour, for the version of the agent."""
        tools = [
            tool if isinstance(tool, str) else getattr(tool, "__qualname__", None) or getattr(tool, "name", "")
            for tool in self.tools
        ]
        return repr((self.instructions, self.model, tools, self.session, *(["by_thread"] if self.by_thread else [])))

    @property
    def expects_items(self) -> bool:
        return bool(self.agent.checklist)
