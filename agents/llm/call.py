"""One call of `run.llm`, from the prompt to the result."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from secrets import token_hex
from typing import Any, Literal, TypedDict
from uuid import UUID

from asgiref.sync import async_to_sync
from pydantic_ai import Agent, RunContext, UsageLimits
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.durable_exec import replay_scope
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolResults
from pydantic_core import to_jsonable_python

from agents.exceptions import Permanent
from agents.guards.llm_calls import admitted
from agents.journal.concurrent import ConcurrentSteps, in_main_thread
from agents.journal.engine import Journal
from agents.journal.protocol import Answer, Effect, Place, fitting
from agents.kernel.tool_cap import narrowed
from agents.llm.costs.metered import MeteredModel
from agents.llm.delegates import DEEPEST
from agents.llm.door.approvals import Approver
from agents.llm.door.door import Door
from agents.llm.door.main_thread import MainThread
from agents.llm.outputs import functions_in
from agents.llm.providers.failures import refusals_final
from agents.llm.providers.models import model_for
from agents.llm.providers.stand_in import asking
from agents.llm.requests import secrets
from agents.llm.requests.durability import Durability
from agents.llm.requests.step_backend import StepBackend
from agents.llm.strangers.addresses import without
from agents.llm.strangers.fences import fenced, fenced_answer, is_declared_trusted
from agents.llm.turn import Turn
from agents.telemetry import instrumentation

Prompt = str | Sequence[UserContent] | None
SUMMARISE = """\
You shorten a conversation of agents that goes on later. Write what the next turns need: facts, decisions, open questions, what \
people were told and asked for. Leave out greetings and what no longer matters. At most 300 words, as plain text."""


class LlmOptions(TypedDict, total=False):
    """Besides `tools` (the names of those that this call may use), `session` (the name of the conversation that the call goes
    on with; default: a fresh one) and `llm_in_flight` ("repeat", or "park": a request that was in flight at a crash is not
    made again, a person decides), options of `pydantic_ai.Agent.run`."""

    tools: Sequence[str] | None
    session: str | None
    llm_in_flight: Literal["repeat", "park"]
    output_type: Any
    message_history: Sequence[ModelMessage] | None
    model_settings: ModelSettings | None
    usage_limits: UsageLimits | None
    instructions: Any
    toolsets: Sequence[Any] | None
    capabilities: Sequence[Any] | None
    deferred_tool_results: Any
    event_stream_handler: Any
    timeout: float | None
    metadata: Any
    retries: Any


@dataclass(frozen=True, kw_only=True)
class LlmContext:
    """The values of its run that a call needs."""

    run_id: UUID
    agent: str
    tools: frozenset[str] | None  # the operator's cap; None: none
    ask: Callable[..., Answer]
    is_tainted: Callable[[], bool]
    taint: Callable[[], None]
    from_strangers: Callable[[], bool]  # may strangers have written the data that woke the run?
    given: Callable[[], Any]  # its input, the data of its events and the answers of its models
    note_said: Callable[[Any], None]  # an answer of a model, for `given`
    depth: int = 0  # the depth of nested calls


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
        given: dict[str, Any] = dict(options)
        tools, in_flight = given.pop("tools", None), given.pop("llm_in_flight", "repeat")
        session = given.pop("session", None)
        if session is not None and (prompt is None or given.get("message_history") is not None):
            raise Permanent("run.llm: session= needs a prompt, and is the history itself: leave out message_history")
        if in_flight not in ("repeat", "park"):
            raise Permanent(f'run.llm: llm_in_flight {in_flight!r} is not "repeat" or "park"')
        if untrusted is not None and not isinstance(prompt, str):
            raise Permanent("run.llm: untrusted= needs a text as the prompt, behind which the data is fenced")
        context = self._context
        model: Model = MeteredModel(model_for(self._agent), self._steps.journal, is_spare=self._is_spare)
        await in_main_thread(secrets.learn, model)
        place, opening = await in_main_thread(
            self._steps.journal.named_value,
            self._place,
            lambda: {
                "began": datetime.now(UTC).isoformat(),
                "mark": token_hex(8),
                "model": model.model_id,
                "prompt": prompt if isinstance(prompt, str) else None,
                "untrusted": untrusted is not None,
                **({"strangers": True} if not context.is_tainted() and context.from_strangers() else {}),
                **({"session": session} if session is not None else {}),
            },
            kind="llm",
        )
        if opening is None:
            raise Permanent(f"the content of {place!r} has been erased from the journal, so it cannot be replayed")
        strange = False
        if (results := given.get("deferred_tool_results")) is not None:
            given["deferred_tool_results"], strange = _fenced_results(results, opening["mark"])
        if untrusted is not None or opening["untrusted"] or opening.get("strangers") or strange:
            context.taint()
        from_strangers: list[Any] = []
        own_words = prompt if isinstance(prompt, str) else ""
        if context.depth and context.is_tainted():
            own_words = ""  # a model wrote the task
        elif context.is_tainted():
            from_strangers = [await in_main_thread(context.given), untrusted]
            own_words = without(own_words, from_strangers)
        if untrusted is not None:
            prompt = fenced(str(prompt), untrusted, opening["mark"])
        turn = None
        if session is not None:
            whose: Any = {"agent": context.agent, "run_id": context.run_id}
            turn = Turn(session, self._steps, call=place, **whose, taint=context.taint)
        async with turn.given_up_by_failure() if turn else nullcontext():
            past = await turn.begin(partial(self._summarise, place)) if turn else None
            if past is not None:
                given["message_history"] = past
                # The history has no system prompts, so that each agent speaks with its own.
                given["capabilities"] = [ReinjectSystemPrompt(), *(given.get("capabilities") or ())]
            effect: Effect = "at_most_once" if in_flight == "park" else "idempotent"
            backend = StepBackend(place, self._name, self._steps, effect, past)
            allowed = narrowed(context.tools, tools)
            durability = self._durability(opening["began"], place, model, backend, allowed)
            output_type = given.get("output_type") or self._agent.output_type
            door = self._door(place, backend, allowed, output_type, own_words, from_strangers, opening["mark"])
            given["capabilities"] = [
                door,
                *(given.get("capabilities") or ()),
                *instrumentation(),
                durability,
                door.last_look,
            ]
            with (
                replay_scope(),
                self._agent.override(model=model),
                Agent.using_thread_executor(MainThread()),
                asking(),
                refusals_final(),
                admitted(),
            ):
                async with model:
                    result: AgentRunResult[Any] = await self._agent.run(prompt, deps=deps, infer_name=False, **given)
            if turn:
                await turn.record(result.new_messages(), context.is_tainted)
            context.note_said(to_jsonable_python(result.output, bytes_mode="base64", fallback=str))
            return result

    def _durability(
        self, began: str, place: str, model: Model, backend: StepBackend, tools: frozenset[str] | None
    ) -> Durability:
        return Durability(
            model=model,
            call=place,
            began=datetime.fromisoformat(began),
            run_id=str(self._context.run_id),
            agent_name=self._name,
            backend=backend,
            tools=tools,
            taint=self._context.taint,
        )

    def _door(
        self,
        place: str,
        backend: StepBackend,
        tools: frozenset[str] | None,
        output_type: Any,
        own_words: str,
        from_strangers: Sequence[Any],
        mark: str,
    ) -> Door:
        store, context = self._steps.journal.store, self._context
        return Door(
            steps=backend.tools,
            approver=Approver(
                context.agent,
                place,
                context.ask,
                context.is_tainted,
                recorded=lambda key: store.waits.get(f"approval:{key}"),
            ),
            tools=tools,
            outputs=functions_in(output_type),
            is_tainted=context.is_tainted,
            taint=context.taint,
            prompt=own_words,
            from_strangers=from_strangers,
            mark=mark,
            hand_over=partial(self._hand_over, place, tools),
        )

    async def _hand_over(
        self,
        place: str,
        tools: frozenset[str] | None,
        key: str,
        agent: Agent[Any, Any],
        task: str,
        ctx: RunContext[Any],
    ) -> Any:
        """Run another agent on a task within this call: under the tool cap of this call, and counted in its usage."""
        context = replace(self._context, tools=tools, depth=self._context.depth + 1)
        if context.depth > DEEPEST:
            raise Permanent(f"tool {ctx.tool_name!r}: agents hand tasks to each other more than {DEEPEST} calls deep")
        name = agent.name or context.agent
        call = LlmCall(self._steps, context, agent, key=fitting(f"{place} {key}", beside=f"llm {name}:request 9999"))
        options: Any = {"usage": ctx.usage}
        return to_jsonable_python((await call.run(task, None, ctx.deps, options)).output, fallback=str)

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

    async def run() -> AgentRunResult[Any] | None:
        steps = ConcurrentSteps(journal)
        limit = asyncio.timeout(_most(journal.store.seconds_left))
        try:
            async with limit:
                try:
                    return await LlmCall(steps, context, agent, key=key).run(prompt, untrusted, deps, options)
                except asyncio.CancelledError:
                    raise
                except BaseException:
                    await steps.finish()  # parallel steps would be repeated otherwise
                    raise
        except TimeoutError:
            if not limit.expired():
                raise
            return None

    result = async_to_sync(run)()
    if result is None:
        time.sleep(1 + (journal.store.seconds_left or 0))  # the signal of the body's deadline arrives here
        raise TimeoutError("the time of the body was over")
    return result


def _fenced_results(results: DeferredToolResults, mark: str) -> tuple[DeferredToolResults, bool]:
    """Fence results from outside of calls that the model made, except those declared trusted. Is there any such
    result?
    """
    strange = {call: answer for call, answer in results.calls.items() if not is_declared_trusted(answer)}
    fences = {call: fenced_answer(answer, mark) for call, answer in strange.items()}
    return replace(results, calls={**results.calls, **fences}), bool(strange)


def _most(seconds: float | None) -> float | None:
    # The signal interrupts the thread that waits for the loop. The loop must end first.
    return None if seconds is None else max(seconds - min(1.0, seconds / 5), 0.0)
