"""Models of LangChain for tests, and durable agents from a body."""

from collections.abc import Callable, Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from agents.agent import Agent

USED = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}


class Scripted(BaseChatModel):
    """Gives what `script` makes of the text of the last message: a text, an AIMessage, or an exception to raise."""

    script: Any = "so"
    asked: list[Any] = []
    model: str = "gpt-4o"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
        return {"ls_provider": "openai", "ls_model_name": self.model, "ls_model_type": "chat"}

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **kwargs: Any) -> Any:
        names = [{"name": getattr(tool, "name", None) or tool.__name__} for tool in tools]
        return self.bind(tools=names, **({"tool_choice": tool_choice} if tool_choice else {}), **kwargs)

    def _answer(self, messages: Any, options: Any) -> AIMessage:
        self.asked.append({"messages": messages, **options})
        said = self.script(messages[-1].text) if callable(self.script) else self.script
        if isinstance(said, Exception):
            raise said
        if isinstance(said, AIMessage):
            return said
        return AIMessage(said, usage_metadata=USED, response_metadata={"model_name": self.model})

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, kwargs))])

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for word in str(self._answer(messages, kwargs).text).split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))


def scripted(script: Any = "so") -> Scripted:
    return Scripted(script=script, asked=[])


def durable(body: Callable[..., Any], **about: Any) -> Agent:
    return Agent(name="walker", body=body, durable=True, **about)
