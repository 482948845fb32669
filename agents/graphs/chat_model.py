"""A chat model of LangChain around another one: its requests, in a graph of a run, are steps."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableBinding
from pydantic import Field, SecretStr

from agents.exceptions import Permanent
from agents.frameworks.clients import without_retries
from agents.frameworks.tools import in_cap
from agents.graphs.costs import priced
from agents.graphs.messages import as_chunk, asked, whole
from agents.graphs.refusals import JOURNALED
from agents.graphs.requests import Request, Requests, of_this_graph
from agents.guards.bodies import is_within_body
from agents.journal.begun import is_within_step
from agents.kernel.redaction import know


class JournaledChatModel(BaseChatModel):
    """`agents.graphs.journaled` makes it. A stream is given once its answer is recorded, in the pieces in which it came; on a replay
    in one piece."""

    inner: BaseChatModel
    trusted_tools: frozenset[str] = frozenset()
    output_bound: str = "max_tokens"
    has_output_tool: bool = False  # its answer is the arguments of a tool, as for a structured output
    cache: Any = Field(default=False, exclude=True)  # a cache would answer one execution of a node, and not the next
    metadata: dict[str, Any] | None = Field(default_factory=lambda: {JOURNALED: True}, exclude=True)

    @property
    def _llm_type(self) -> str:
        return f"journaled {self.inner._llm_type}"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return self.inner._get_ls_params(stop=stop, **kwargs)

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any) -> Any:
        """The tools in the form that the provider of the inner model takes."""
        chosen: dict[str, Any] = {} if tool_choice is None else {"tool_choice": tool_choice}
        bound = self.inner.bind_tools(tools, **chosen, **kwargs)
        if not isinstance(bound, RunnableBinding) or bound.bound is not self.inner:
            raise Permanent(
                f"{type(self.inner).__name__}.bind_tools gives another model than itself, so it cannot be journaled"
            )
        return self.bind(**bound.kwargs)

    def with_structured_output(self, schema: Any, *, include_raw: bool = False, **kwargs: Any) -> Any:
        """By a tool call, whatever the provider of the inner model has besides."""
        model = self.model_copy(update={"has_output_tool": True})
        return BaseChatModel.with_structured_output(model, schema, include_raw=include_raw, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        def send(options: Mapping[str, Any]) -> AIMessage:
            return self.inner.invoke(sent.asked.messages, config={"callbacks": []}, stop=stop, **options)

        requests, sent = self._request(messages, stop, kwargs)
        return _result(requests.answer(sent, send) if requests else send(kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        async def send(options: Mapping[str, Any]) -> AIMessage:
            return await self.inner.ainvoke(sent.asked.messages, config={"callbacks": []}, stop=stop, **options)

        requests, sent = self._request(messages, stop, kwargs)
        return _result(await (requests.answer_async(sent, send) if requests else send(kwargs)))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        chunks: list[Any] = []

        def send(options: Mapping[str, Any]) -> AIMessage:
            chunks[:] = self.inner.stream(sent.asked.messages, config={"callbacks": []}, stop=stop, **options)
            return whole(chunks)

        requests, sent = self._request(messages, stop, kwargs)
        message = requests.answer(sent, send) if requests else send(kwargs)
        yield from (ChatGenerationChunk(message=chunk) for chunk in chunks or [as_chunk(message)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        chunks: list[Any] = []

        async def send(options: Mapping[str, Any]) -> AIMessage:
            stream = self.inner.astream(sent.asked.messages, config={"callbacks": []}, stop=stop, **options)
            chunks[:] = [chunk async for chunk in stream]
            return whole(chunks)

        requests, sent = self._request(messages, stop, kwargs)
        message = await (requests.answer_async(sent, send) if requests else send(kwargs))
        for chunk in chunks or [as_chunk(message)]:
            yield ChatGenerationChunk(message=chunk)

    def _request(
        self, messages: Sequence[BaseMessage], stop: Sequence[str] | None, options: dict[str, Any]
    ) -> tuple[Requests | None, Request]:
        """Permanent: a body calls the model outside of its graphs and steps, or from a thread of its own."""
        requests = of_this_graph()
        is_in_step = is_within_step()
        if requests is None and is_within_body() and not is_in_step:
            raise Permanent(
                f"{self._llm_type} is called by a run outside of run.graph, or in a thread of its own: nothing would be recorded or "
                "paid from budgets. Call it in a node of the graph, or in run.step"
            )
        if is_in_step:
            requests = None
        cap = requests.cap if requests and not self.has_output_tool else None
        if requests:
            know(*_secrets_of(self.inner))
            without_retries(self.inner)
            if "tools" in options:
                options["tools"] = in_cap(options["tools"], cap)
        request = Request(
            asked=asked(messages, options, stop),
            priced=priced(self.inner),
            trusted_tools=self.trusted_tools,
            bound=self.output_bound,
            cap=cap,
        )
        return requests, request


def _result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def _secrets_of(model: BaseChatModel) -> Iterator[str]:
    for name in type(model).model_fields:
        if isinstance(value := getattr(model, name), SecretStr):
            yield value.get_secret_value()
