"""One call of `run.llm`, from the prompt to the result."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.durable_exec import replay_scope
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult
from pydantic_core import to_jsonable_python

from agents.exceptions import Permanent
from agents.guards.llm_calls import admitted
from agents.journal.concurrent import ConcurrentSteps, in_main_thread
from agents.journal.engine import Journal
from agents.journal.from_plain import from_plain_function
from agents.journal.protocol import Place, fitting
from agents.llm.context import LlmArguments, LlmContext, LlmOptions, Prompt
from agents.llm.costs.metered import MeteredModel
from agents.llm.delegates import DEEPEST
from agents.llm.door.approvals import Approver
from agents.llm.door.door import Door
from agents.llm.door.main_thread import MainThread
from agents.llm.door.tool_steps import ToolSteps
from agents.llm.opening import Opened, opened
from agents.llm.outputs import functions_in
from agents.llm.providers.failures import refusals_final
from agents.llm.providers.models import model_for
from agents.llm.providers.names import names_of
from agents.llm.providers.stand_in import asking
from agents.llm.requests import secrets
from agents.llm.requests.durability import Durability
from agents.llm.requests.step_backend import StepBackend
from agents.llm.turn import Turn
from agents.telemetry import instrumentation

SUMMARISE = """\
You shorten a conversation of agents that goes on later. Write what the next turns need: facts, decisions, open questions, what \
people were told and asked for. Leave out greetings and what no longer matters. At most 300 words, as plain text."""


class LlmCall:
    """`is_spare`: the run can do without it, so it fails where a budget never has room for it."""

    def __init__(
        self,
        steps: ConcurrentSteps,
        context: LlmContext,
        agent: Agent[Any, Any],
        *,
        key: str = "",
        is_spare: bool = False,
    ) -> None:
        if not isinstance(agent, Agent):
            raise Permanent(f"run.llm takes a pydantic_ai.Agent, not {agent!r}")
        self._steps = steps
        self._context = context
        self._agent = agent
        self._name = agent.name or context.agent
        self._is_spare = is_spare
        self._place = Place(name=f"llm {self._name}", key=key, is_numbered=not key)

    async def run(self, prompt: Prompt, untrusted: Any, deps: Any, options: LlmOptions) -> AgentRunResult[Any]:
        """Run the LLM agent to its result. Recorded requests are neither sent nor paid again."""
        asked = LlmArguments.of(prompt, untrusted, deps, options)
        model: Model = MeteredModel(model_for(self._agent), self._steps.journal, is_spare=self._is_spare)
        await in_main_thread(secrets.learn, model)
        call = await opened(self._steps.journal, self._place, asked, self._context, model)
        turn = self._turn(call)
        async with turn.given_up_by_failure() if turn else nullcontext():
            past = await turn.begin(partial(self._summarise, call.place)) if turn else None
            result = await self._answer(call, model, past)
            if turn:
                await turn.record(result.new_messages(), self._context.is_tainted)
            self._context.note_said(to_jsonable_python(result.output, bytes_mode="base64", fallback=str))
            return result

    def _turn(self, call: Opened) -> Turn | None:
        if call.asked.session is None:
            return None
        context = self._context
        whose: Any = {"agent": context.agent, "run_id": context.run_id}
        return Turn(call.asked.session, self._steps, call=call.place, **whose, taint=context.taint)

    async def _answer(self, call: Opened, model: Model, past: Sequence[ModelMessage] | None) -> AgentRunResult[Any]:
        """The result of the agent; `past` is the history of the session."""
        asked = call.asked if past is None else call.asked.after(past)
        # A limit of time counts from the beginning of a replay.
        names = names_of(self._agent) if asked.options.get("timeout") is None else ()
        backend = StepBackend(call.place, self._name, self._steps, asked.effect, past, names)
        durability = Durability(call, self._context, agent_name=self._name, model=model, backend=backend)
        door = self._door(call, backend.tools)
        given = asked.options.get("capabilities") or ()
        capabilities = [door, *given, *instrumentation(), durability, door.last_look]
        options: dict[str, Any] = {**asked.options, "capabilities": capabilities}
        with (
            replay_scope(),
            self._agent.override(model=model),
            Agent.using_thread_executor(MainThread()),
            asking(),
            refusals_final(),
            admitted(),
        ):
            async with model:
                return await self._agent.run(asked.prompt, deps=asked.deps, infer_name=False, **options)

    def _door(self, call: Opened, steps: ToolSteps) -> Door:
        store = self._steps.journal.store
        approver = Approver(self._context, call.place, recorded=lambda key: store.waits.get(f"approval:{key}"))
        outputs = functions_in(call.asked.options.get("output_type") or self._agent.output_type)
        return Door(self._context, call, steps, approver, outputs, hand_over=partial(self._hand_over, call))

    async def _hand_over(self, call: Opened, key: str, agent: Agent[Any, Any], task: str, ctx: RunContext[Any]) -> Any:
        """Run another agent on a task within this call: under the tool cap of this call, and counted in its usage."""
        context = replace(self._context, tools=call.tools, depth=self._context.depth + 1)
        if context.depth > DEEPEST:
            raise Permanent(f"tool {ctx.tool_name!r}: agents hand tasks to each other more than {DEEPEST} calls deep")
        name = agent.name or context.agent
        key = fitting(f"{call.place} {key}", beside=f"llm {name}:request 9999")
        nested = LlmCall(self._steps, context, agent, key=key)
        options: Any = {"usage": ctx.usage}
        return to_jsonable_python((await nested.run(task, None, ctx.deps, options)).output, fallback=str)

    async def _summarise(self, place: str, text: str, is_tainted: bool) -> str:
        """Ask the agent's own model for a summary of old turns, in steps of its own."""
        writer: Agent[None, str] = Agent(
            self._agent.model, name="summary", instructions=SUMMARISE, defer_model_check=True
        )
        call = LlmCall(
            self._steps, self._context, writer, key=fitting(place, beside="llm summary:request 99"), is_spare=True
        )
        prompt = "Summarise this conversation." if is_tainted else f"Summarise this conversation.\n\n{text}"
        return str((await call.run(prompt, text if is_tainted else None, None, {})).output)


def run_sync(
    journal: Journal,
    context: LlmContext,
    agent: Agent[Any, Any],
    prompt: Prompt,
    *,
    untrusted: Any,
    deps: Any,
    key: str,
    options: LlmOptions,
) -> AgentRunResult[Any]:
    """`LlmCall.run` from a plain function."""

    async def run(steps: ConcurrentSteps) -> AgentRunResult[Any]:
        return await LlmCall(steps, context, agent, key=key).run(prompt, untrusted, deps, options)

    return from_plain_function(journal, run)
