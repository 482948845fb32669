"""A heartbeat agent: it looks at a checklist from time to time, and speaks up if a person should know something.

    Heartbeat("ops-watch", every="30m", pacing=("10m", "4h"), active_hours="07:00-22:00", tz="Europe/Vienna",
              checklist={"Are there failed runs?": None, "Is the newest backup older than a day?": "6h"},
              tools=[failed_runs, newest_backup])

It is an ordinary durable agent. At each wake its gate looks for due items, and then asks the author's own gate; both cost no model
call and no run where they are quiet. The body makes one call of `run.llm` for all items that are due, records how each ended, and
notifies a person if the verdict says so. An error of a tool is told to the model, so it fails the items that need the tool alone.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agents.sessions.names import checked_name

from .agent import Agent, agent
from .budget import Budget
from .exceptions import DeclarationError, Permanent
from .gate import Fire, Gate, Quiet
from .gate_run import GateRun
from .on import Length, heartbeat
from .reminders import Reminder, reminders_of
from .run import AgentRun

if TYPE_CHECKING:
    from pydantic_ai import Agent as LlmAgent

    from agents.llm.verdict import Verdict


LONGEST_PACE = timedelta(days=366)  # what is silenced for ever has no earlier time


class Heartbeat:
    """Declares the agent `name`, which is then `agent` of this object.

    `every` is its interval; with `pacing` (shortest, longest) the verdict and the next due item move its next wake.
    `active_hours` ("mon-fri 08:00-18:00") are in the zone `tz`. `model` names a model ("openai:gpt-5.2"); default:
    WAKEFUL_MODEL. `tools` are functions, `pydantic_ai.Tool`s or names of the toolbox. `checklist` is declared as for `@agent`;
    without any item the agent looks by its `instructions` alone. `gate` is asked where an item is due. `session` names the
    conversation that its runs go on with; without it each begins a fresh one. Other options are those of `@agent`. Raises
    DeclarationError.
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
        instructions: str = "",
        checklist: Mapping[str, str | float | timedelta | None] | Sequence[str] = (),
        gate: Gate | None = None,
        budget: Budget | None = None,
        slug: str = "",
        **options: Any,
    ) -> None:
        self.name = name
        try:
            checked_name(session or "fresh")
        except Permanent as error:
            raise DeclarationError(f"agent {name!r}: {error}") from None
        self.pacing = pacing
        self.model = model
        self.tools = tuple(tools)
        self.session = session
        self.instructions = instructions
        self.gate = gate
        # The registry tells two agents of one name apart by where their bodies are.
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
        """What decides how it behaves, for the version of the agent."""
        tools = [
            tool if isinstance(tool, str) else getattr(tool, "__qualname__", None) or getattr(tool, "name", "")
            for tool in self.tools
        ]
        return repr((self.instructions, self.model, tools, self.session))

    @cached_property
    def watcher(self) -> "LlmAgent[Any, Verdict]":
        from agents.llm.verdict import watcher
        from agents.tools.toolbox import named

        return watcher(self.name, model=self.model, instructions=self.instructions, tools=named(self.tools))

    def ask(self, run: GateRun) -> Fire | Quiet:
        """The gate: quiet unless an item is due; then the author's own gate decides."""
        seen = run.checklist.look()
        if seen.silenced_until:
            return Quiet(f"its checklist is silenced until {seen.silenced_until:%Y-%m-%d %H:%M} UTC")
        if reminders_of(run.events):
            return Fire("it asked to be woken")
        if seen.items and not seen.due:
            return Quiet("no item is due" + (f" before {seen.next_at:%Y-%m-%d %H:%M} UTC" if seen.next_at else ""))
        if self.gate is not None:
            return self.gate(run)
        if not seen.items and self.agent.checklist and not self.instructions:
            return Quiet("its checklist is empty, and it has no instructions")  # a person has deleted the last item
        return Fire(f"{len(seen.due)} items are due" if seen.items else "it has no checklist")

    def __call__(self, run: AgentRun) -> dict[str, Any]:
        from agents.llm.verdict import TellFailures, outcomes_of, prompt_of

        items, reminders = run.checklist.due(), reminders_of(run.events)
        if not items and not reminders and not run.checklist.is_empty():
            return {"items": []}  # edited since the gate was asked
        verdict = run.llm(
            self.watcher,
            prompt_of(items, run.now(), [reminder.text for reminder in reminders if not reminder.is_tainted]),
            untrusted=_untrusted(run.fired.data if run.fired else None, reminders),
            deps=run,
            capabilities=[TellFailures()],
            session=self.session or None,
        ).output
        run.checklist.record(*outcomes_of(verdict, items))
        if verdict.notify:
            run.notify(verdict.text, urgency=verdict.urgency)
        self._set_pace(run, verdict)
        said: dict[str, Any] = verdict.model_dump()
        return said

    def _set_pace(self, run: AgentRun, verdict: "Verdict") -> None:
        if self.pacing is None:
            return
        asked = timedelta(minutes=verdict.next_check) if verdict.next_check else None
        due = run.checklist.next_in()
        wanted = min((after for after in (asked, due) if after is not None), default=None)
        if wanted is not None:
            run.next_check(
                min(wanted, LONGEST_PACE), "its verdict asked for it" if wanted == asked else "an item is due then"
            )


def _untrusted(fired: Any, reminders: Sequence[Reminder]) -> Any:
    """What the gate found, and what a tainted run told itself."""
    tainted = [reminder.text for reminder in reminders if reminder.is_tainted]
    return {"fired": fired, "reminders": tainted} if tainted else fired
