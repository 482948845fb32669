"""One call of `run.graph`, from its input to its output. The thread of the graph is the run; a replay goes on from the last checkpoint."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from langgraph.types import Command

from agents.exceptions import Permanent
from agents.frameworks.body import on_a_loop
from agents.graphs import questions
from agents.graphs.definition import nodes_of, require_runnable
from agents.graphs.questions import Resume
from agents.graphs.refusals import refusing
from agents.graphs.requests import Requests, through
from agents.graphs.saver import JournalSaver
from agents.journal.concurrent import ConcurrentSteps, in_main_thread
from agents.journal.engine import Journal
from agents.journal.protocol import Place, fitting
from agents.kernel.redaction import refresh
from agents.llm.context import LlmContext
from agents.llm.door.danger import TAINTED

LONGEST_KEY = 80
OPENED = "llm"  # the kind of its first entry: what stands below it is a conversation


class GraphCall:
    """`answer` makes what the node of an interrupt gets of a person's answer; without it, `questions.resumed`."""

    def __init__(
        self, steps: ConcurrentSteps, context: LlmContext, app: Any, *, key: str = "", answer: Resume | None = None
    ) -> None:
        require_runnable(app)
        if len(key) > LONGEST_KEY:
            raise Permanent(f"run.graph: the key has {len(key)} characters; use at most {LONGEST_KEY}")
        self._steps = steps
        self._journal = steps.journal
        self._context = context
        self._app = app
        self._answer = answer or questions.resumed
        self._name = Place(name="graph", key=key, is_numbered=not key)

    async def run(self, input: Any, config: Any, given: Any) -> Any:
        """`given` is the context of the graph (`context_schema`)."""
        if input is None or isinstance(input, Command):
            raise Permanent("run.graph needs an input: the run itself resumes its graph")
        await in_main_thread(refresh)
        place = await self._open()
        saver = await in_main_thread(JournalSaver, self._journal, place, str(self._context.run_id))
        requests = Requests(place, self._steps, self._context, saver)
        app = self._app.copy({"checkpointer": saver})
        thread = {**(config or {}).get("configurable", {}), "thread_id": str(self._context.run_id), "checkpoint_ns": ""}
        config = {**(config or {}), "configurable": thread}
        try:
            with through(requests), refusing(self._context.tools):
                return await self._to_the_end(app, saver, requests, input, config, given, place)
        except BaseException:
            if self._journal.end:
                raise self._journal.end from None  # whatever LangGraph has made of it
            raise
        finally:
            await requests.finish()

    async def _open(self) -> str:
        """The key of this call. Parks the run where today's graph has lost nodes: LangGraph would end without a word."""
        nodes = nodes_of(self._app)
        place, opened = await in_main_thread(
            self._journal.named_value, self._name, partial(self._opening, nodes), kind=OPENED
        )
        if opened is None:
            raise Permanent(f"the content of {place!r} has been erased from the journal, so it cannot be replayed")
        if gone := sorted(set(opened["nodes"]) - set(nodes)):
            await in_main_thread(
                self._journal.park, f"{place!r} began with nodes that the graph no longer has: {', '.join(gone)}"
            )
        return place

    def _opening(self, nodes: list[str]) -> dict[str, Any]:
        return {"model": "", "prompt": None, "untrusted": False, "mark": "", "nodes": nodes}

    async def _to_the_end(
        self, app: Any, saver: JournalSaver, requests: Requests, input: Any, config: Any, given: Any, place: str
    ) -> Any:
        state, before = await app.aget_state(config), None
        # `state.next` is empty as well where all nodes of a superstep have ended and its checkpoint is not recorded yet.
        while state.created_at is None or state.tasks:
            if state.created_at is None:
                given_in: Any = input
            elif answers := await self._answers(saver, state.interrupts, place):
                given_in = Command(resume=answers)
            elif before == _place_in(state):
                raise Permanent(f"{place!r} stands still at {', '.join(task.name for task in state.tasks)}")
            else:
                given_in = None
            before = _place_in(state) if given_in is None else None
            await app.ainvoke(given_in, config, durability="sync", **({} if given is None else {"context": given}))
            state = await app.aget_state(config)
        return _output(app, state.values)

    async def _answers(self, saver: JournalSaver, interrupts: Sequence[Any], place: str) -> dict[str, Any]:
        earlier = {one.id: saver.answers_before(one.id) for one in interrupts}
        return {
            one.id: await self._ask(one, before, place) for one in interrupts if (before := earlier[one.id]) is not None
        }

    async def _ask(self, interrupt: Any, earlier: int, place: str) -> Any:
        key = fitting(f"{place}: {interrupt.id}{f' {earlier + 1}' if earlier else ''}", beside="approval")
        wanted = questions.asked(interrupt.value, self._context.agent)
        if self._context.is_tainted():
            wanted = {"detail": TAINTED, **wanted}
        answer = await in_main_thread(partial(self._context.ask, key=key, **wanted))
        return self._answer(interrupt.value, answer)


def run_sync(
    journal: Journal,
    context: LlmContext,
    app: Any,
    input: Any,
    *,
    key: str,
    config: Any,
    given: Any,
    answer: Resume | None,
) -> Any:
    """`GraphCall.run` from a plain function, on an event loop of its own."""

    async def run(steps: ConcurrentSteps) -> Any:
        return await GraphCall(steps, context, app, key=key, answer=answer).run(input, config, given)

    return on_a_loop(journal, run)


def _place_in(state: Any) -> Any:
    return state.config["configurable"].get("checkpoint_id"), [task.id for task in state.tasks]


def _output(app: Any, values: Any) -> Any:
    """What LangGraph itself returns: the channels of the output."""
    names = app.output_channels
    if isinstance(names, str):
        return values.get(names) if isinstance(values, dict) and names in values else values
    return {name: values[name] for name in names if name in values}
