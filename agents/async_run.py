"""The run of an `async def` agent with durable=True: AgentRun with awaitable methods."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from agents.checklists.run_checklist import Checked, DueItem
from agents.journal.concurrent import ConcurrentSteps, in_main_thread
from agents.journal.engine import Journal
from agents.journal.protocol import Answer, Effect
from agents.memory import Note

from .run import AgentRun, Duration, step_request

if TYPE_CHECKING:
    from typing import Unpack

    from langgraph.pregel import Pregel
    from pydantic_ai import Agent as LlmAgent
    from pydantic_ai.run import AgentRunResult

    from agents.connections import Opening
    from agents.llm.context import LlmOptions, Prompt

AWAITED = frozenset(
    {
        "emit",
        "notify",
        "reply",
        "spawn",
        "wake_in",
        "next_check",
        "schedule",
        "now",
        "uuid",
        "random",
        "sleep",
        "sleep_until",
    }
    | {"wait_for_event", "wait_for_signal", "ask_approval", "join", "gather"}
)


class AsyncState:
    """`run.state`, awaitable."""

    def __init__(self, run: AgentRun) -> None:
        self._state = run.state

    async def get(self, name: str, default: Any = None) -> Any:
        return await in_main_thread(self._state.get, name, default)

    async def set(self, name: str, value: Any) -> None:
        await in_main_thread(self._state.set, name, value)


class AsyncMemory:
    """`run.memory`, awaitable."""

    def __init__(self, run: AgentRun) -> None:
        self._memory = run.memory

    async def get(self, key: str) -> Note | None:
        return await in_main_thread(self._memory.get, key)

    async def search(self, text: str, limit: int = 10) -> list[Note]:
        return await in_main_thread(self._memory.search, text, limit)

    async def put(self, key: str, text: str, *, revision: int | None = None) -> int:
        return await in_main_thread(self._memory.put, key, text, revision=revision)

    async def delete(self, key: str, *, revision: int | None = None) -> bool:
        return await in_main_thread(self._memory.delete, key, revision=revision)


class AsyncChecklist:
    """`run.checklist`, awaitable."""

    def __init__(self, run: AgentRun) -> None:
        self._checklist = run.checklist

    async def due(self) -> list[DueItem]:
        return await in_main_thread(self._checklist.due)

    async def is_empty(self) -> bool:
        return await in_main_thread(self._checklist.is_empty)

    async def next_in(self) -> timedelta | None:
        return await in_main_thread(self._checklist.next_in)

    async def record(self, *checked: Checked) -> None:
        await in_main_thread(self._checklist.record, *checked)


class AsyncAgentRun:
    """AgentRun whose methods that read or write the journal are awaitable; other attributes are AgentRun's own.

    A step that is a coroutine function runs on the event loop, in parallel with others if gathered. A transactional step is
    a plain function, because its transaction belongs to one thread.
    """

    def __init__(self, run: AgentRun, journal: Journal) -> None:
        self._run = run
        self._journal = journal
        self._steps = ConcurrentSteps(journal)
        self.state = AsyncState(run)
        self.memory = AsyncMemory(run)
        self.checklist = AsyncChecklist(run)

    @property
    def plain(self) -> AgentRun:
        """The run whose methods are not awaitable, for the thread of the database connection."""
        return self._run

    @property
    def thread(self) -> Awaitable[str]:
        """`AgentRun.thread`, awaitable."""
        return in_main_thread(lambda: self._run.thread)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._run, name)
        return partial(in_main_thread, found) if name in AWAITED else found

    async def step(
        self,
        name: str,
        body: Callable[..., Any],
        *arguments: Any,
        key: object = "",
        effect: Effect = "transactional",
        retries: int = 0,
        timeout: Duration | None = None,
    ) -> Any:
        """`AgentRun.step`, whose body may be a coroutine function unless it is transactional."""
        request = step_request(name, arguments, key, effect, retries, timeout)
        if iscoroutinefunction(body) and effect == "transactional":
            raise TypeError(
                f"step {name!r} is transactional, so its body is a plain function (def): its transaction belongs to one "
                "thread. Give it another effect, or make it a plain function"
            )
        with self._steps.beside(request):
            begun = await in_main_thread(self._journal.begin, request)
            if begun.is_recorded:
                return begun.output
            if not iscoroutinefunction(body):
                with self._run.state.undone_by_failure(), self._run.memory.undone_by_failure():
                    return await in_main_thread(self._journal.perform, begun, partial(body, *arguments))
            return await self._steps.run(begun, partial(body, *arguments))

    async def llm(
        self,
        agent: "LlmAgent[Any, Any]",
        prompt: "Prompt",
        *,
        untrusted: Any = None,
        deps: Any = None,
        key: str = "",
        **options: "Unpack[LlmOptions]",
    ) -> "AgentRunResult[Any]":
        """`AgentRun.llm`."""
        from agents.llm.call import LlmCall

        return await LlmCall(self._steps, self._run.llm_context(), agent, key=key).run(prompt, untrusted, deps, options)

    def connection(self, name: str, *, trusted: bool = False, harmless: bool = False) -> "Opening":
        """`AgentRun.connection`, as `async with run.connection("gmail") as http`: an AsyncClient."""
        from agents.connections import Opening

        return Opening(partial(self._run.use_of_connection, name, trusted=trusted, harmless=harmless))

    async def graph(
        self,
        app: "Pregel[Any, Any, Any, Any]",
        input: Any,
        *,
        key: str = "",
        config: Any = None,
        context: Any = None,
        answer: Callable[[Any, Answer], Any] | None = None,
    ) -> Any:
        """`AgentRun.graph`."""
        from agents.graphs.extra import require_langgraph

        require_langgraph()
        from agents.graphs.call import GraphCall

        call = GraphCall(self._steps, self._run.llm_context(), app, key=key, answer=answer)
        return await call.run(input, config, context)

    async def openai(
        self, agent: Any, input: Any, *, key: str = "", trusted_tools: Sequence[str] = (), **options: Any
    ) -> Any:
        """`AgentRun.openai`."""
        from agents.openai.call import OpenAICall

        call = OpenAICall(self._steps, self._run.llm_context(), agent, key=key, trusted_tools=trusted_tools)
        return await call.run(input, options)

    async def finish_steps(self) -> None:
        """Call after the body has ended: let its running steps end and begin no other."""
        await self._steps.finish()
