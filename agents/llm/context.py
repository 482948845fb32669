"""What a call of `run.llm` is given: what its caller asks, with the options, and the values of its run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict
from uuid import UUID

from pydantic_ai import UsageLimits
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.settings import ModelSettings

from agents.exceptions import Permanent
from agents.journal.protocol import Answer, Effect

Prompt = str | Sequence[UserContent] | None


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


@dataclass(frozen=True, kw_only=True)
class LlmArguments:
    """What the caller of `run.llm` gives. `options` are those that `pydantic_ai.Agent.run` takes."""

    prompt: Prompt
    untrusted: Any
    deps: Any
    tools: Sequence[str] | None
    session: str | None
    effect: Effect  # of the requests to the model
    options: dict[str, Any]

    @classmethod
    def of(cls, prompt: Prompt, untrusted: Any, deps: Any, options: LlmOptions) -> "LlmArguments":
        """Permanent: these do not go together."""
        given: dict[str, Any] = dict(options)
        tools, in_flight = given.pop("tools", None), given.pop("llm_in_flight", "repeat")
        session = given.pop("session", None)
        if session is not None and (prompt is None or given.get("message_history") is not None):
            raise Permanent("run.llm: session= needs a prompt, and is the history itself: leave out message_history")
        if in_flight not in ("repeat", "park"):
            raise Permanent(f'run.llm: llm_in_flight {in_flight!r} is not "repeat" or "park"')
        if untrusted is not None and not isinstance(prompt, str):
            raise Permanent("run.llm: untrusted= needs a text as the prompt, behind which the data is fenced")
        effect: Effect = "at_most_once" if in_flight == "park" else "idempotent"
        return cls(
            prompt=prompt, untrusted=untrusted, deps=deps, tools=tools, session=session, effect=effect, options=given
        )

    def after(self, past: Sequence[ModelMessage]) -> "LlmArguments":
        """The same as the next turn of a conversation. Its history has no system prompts, so that each agent speaks with
        its own."""
        capabilities = [ReinjectSystemPrompt(), *(self.options.get("capabilities") or ())]
        return replace(self, options={**self.options, "message_history": past, "capabilities": capabilities})
