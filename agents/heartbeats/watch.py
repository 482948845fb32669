"""The look of a watching agent: a quiet gate, one turn for all items that are due, and a verdict. `Heartbeat` declares one in code;
a prompt agent is one that people made."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agents.checklists.run_checklist import DueItem
from agents.gate import Fire, Gate, Quiet
from agents.gate_run import GateRun
from agents.reminders import Reminder, reminders_of
from agents.run import AgentRun

if TYPE_CHECKING:
    from pydantic_ai import Agent as LlmAgent

    from agents.heartbeats.verdict import Verdict


LONGEST_PACE = timedelta(days=366)  # what is silenced for ever has no earlier time


class Watch:
    """The body and the gate of an agent that watches."""

    def __init__(
        self,
        name: str,
        *,
        model: str | None = None,
        tools: Sequence[Callable[..., Any] | Any] = (),
        session: str = "",
        by_thread: bool = False,
        instructions: str = "",
        pacing: tuple[Any, Any] | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.tools = tuple(tools)
        self.session = session
        self.by_thread = by_thread
        self.instructions = instructions
        self.pacing = pacing
        self.gate = gate

    @property
    def expects_items(self) -> bool:
        """Has the agent's author declared a checklist?"""
        return False

    @cached_property
    def watcher(self) -> "LlmAgent[Any, Verdict]":
        from agents.heartbeats.verdict import watcher
        from agents.tools.toolbox import named

        return watcher(self.name, model=self.model, instructions=self.instructions, tools=named(self.tools))

    def ask(self, run: GateRun) -> Fire | Quiet:
        """The gate: quiet unless an item is due; then the author's own gate decides."""
        seen = run.checklist.state()
        if seen.silenced_until:
            return Quiet(f"its checklist is silenced until {seen.silenced_until:%Y-%m-%d %H:%M} UTC")
        if reminders_of(run.events):
            return Fire("it requested this wake")
        if seen.held and not seen.due:
            return Quiet("another run looks at the items that are due")
        if seen.items and not seen.due:
            return Quiet("no item is due" + (f" before {seen.next_at:%Y-%m-%d %H:%M} UTC" if seen.next_at else ""))
        if self.gate is not None:
            return self.gate(run)
        if not seen.items and self.expects_items and not self.instructions:
            return Quiet("its checklist is empty, and it has no instructions")  # a person has deleted the last item
        return Fire(f"{len(seen.due)} items are due" if seen.items else "it has no checklist")

    def __call__(self, run: AgentRun) -> dict[str, Any]:
        from agents.heartbeats.verdict import TellFailures, outcomes_of, prompt_of

        items, reminders = self.items(run), reminders_of(run.events)
        if not items and not reminders and self.needs_items(run):
            return {"items": []}  # edited since the gate was called
        if any(item.is_tainted for item in items):
            run.taint()
        verdict = run.llm(
            self.watcher,
            prompt_of(items, run.now(), [reminder.text for reminder in reminders if not reminder.is_tainted]),
            untrusted=_untrusted(self.found(run), reminders),
            deps=run,
            capabilities=[TellFailures()],
            session=self.conversation(run),
        ).output
        run.checklist.record(*outcomes_of(verdict, items))
        if verdict.notify:
            self.tell(run, verdict)
        self._set_pace(run, verdict)
        said: dict[str, Any] = verdict.model_dump()
        return said

    def conversation(self, run: AgentRun) -> str | None:
        """The session of this turn; None: it begins without memory."""
        thread = run.thread_or_none if self.by_thread else None
        return thread or self.session or None

    def items(self, run: AgentRun) -> list[DueItem]:
        """The items of this turn."""
        return run.checklist.due()

    def needs_items(self, run: AgentRun) -> bool:
        """Is there nothing to ask the model without an item?"""
        return not run.checklist.is_empty()

    def found(self, run: AgentRun) -> Any:
        """Data of strangers for the prompt; None: there is none."""
        return run.fired.data if run.fired else None

    def tell(self, run: AgentRun, verdict: "Verdict") -> None:
        """Notify a person with the text of the verdict."""
        run.notify(verdict.text, urgency=verdict.urgency)

    def _set_pace(self, run: AgentRun, verdict: "Verdict") -> None:
        if self.pacing is None:
            return
        asked = timedelta(minutes=verdict.next_check) if verdict.next_check else None
        due = run.checklist.next_in()
        wanted = min((after for after in (asked, due) if after is not None), default=None)
        if wanted is not None:
            run.next_check(
                min(wanted, LONGEST_PACE), "its verdict requested it" if wanted == asked else "an item is due then"
            )


def _untrusted(found: Any, reminders: Sequence[Reminder]) -> Any:
    """The wake reason, plus reminders set by tainted runs (untrusted)."""
    tainted = [reminder.text for reminder in reminders if reminder.is_tainted]
    return {"fired": found, "reminders": tainted} if tainted else found
