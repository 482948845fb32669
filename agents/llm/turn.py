"""A call of run.llm as a turn in a named session. It holds the session from its look at the history until its own turn is
committed, in one transaction with the journal's entry; so a replay neither repeats nor loses a turn."""

from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Any
from uuid import UUID

import structlog
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart

from agents.exceptions import Permanent, StepFailed
from agents.journal.concurrent import ConcurrentSteps, in_main_thread
from agents.journal.protocol import Place, StepRequest
from agents.llm.strangers.fences import fenced
from agents.sessions import history
from agents.sessions.history import Surplus
from agents.sessions.messages import kept
from agents.sessions.names import checked_name

TURN = "turn"  # the entry that ends the turn
SUMMARY = "This is a summary of the earlier conversation."
Summarise = Callable[[str, bool], Awaitable[str]]  # a text, and whether it is data of strangers

log = structlog.get_logger(__name__)


class Turn:
    """`call` is the key of the call; `agent` and `run_id` are whose turn it is."""

    def __init__(
        self, session: Any, steps: ConcurrentSteps, *, call: str, agent: str, run_id: UUID, taint: Callable[[], None]
    ) -> None:
        self._session = checked_name(session)
        self._steps = steps
        self._journal = steps.journal
        self._call = call
        self._agent = agent
        self._run_id = run_id
        self._taint = taint
        self._holds = False

    @asynccontextmanager
    async def given_up_by_failure(self) -> AsyncIterator[None]:
        """Encloses the call: if it fails, or its caller gives it up, its turn is not recorded, and another run may take the next
        one."""
        try:
            yield
        except (Exception, CancelledError):
            await in_main_thread(self._give_up)
            raise

    async def begin(self, summarise: Summarise) -> list[ModelMessage]:
        """Hold the session, and return its history, which has the size that the session allows."""
        if not self._is_recorded:
            await in_main_thread(self._hold)
            await self._shorten(summarise)
        _, newest = await in_main_thread(
            self._journal.named_value,
            Place(name=self._call, key="history"),
            partial(history.newest, self._session, self._agent),
        )
        if newest["is_tainted"]:
            self._taint()
        given = await in_main_thread(history.read, self._session, newest["through"])
        if given.is_tainted:  # since the entry: another run took a turn, and this one was requeued
            self._taint()
        return [*_summary(given.summary, given.is_summary_tainted), *given.messages]

    async def record(self, messages: Sequence[ModelMessage], is_tainted: Callable[[], bool]) -> None:
        """Append the turn and let the session go."""
        said = kept(messages)

        def act() -> int | None:
            number = None
            if self._journal.store.keeps_turns:
                whose: Any = {"run_id": self._run_id, "agent": self._agent}
                number = history.append(self._session, said, **whose, is_tainted=is_tainted())
            self._journal.let_go()
            return number

        await self._step(TURN, act)
        self._journal.has_let_go()

    def _hold(self) -> None:
        self._journal.hold(self._session, self._call)
        self._holds = True

    def _give_up(self) -> None:
        """Release the session in the main thread, after a hold whose caller stopped waiting."""
        if self._holds and not self._journal.end:  # an interrupted run continues its turn later
            self._holds = False
            self._journal.let_go()

    @property
    def _is_recorded(self) -> bool:
        known = self._journal.store.steps.get(f"{self._call}:{TURN}")
        return known is not None and known.status == "done"

    async def _shorten(self, summarise: Summarise) -> None:
        going = await in_main_thread(history.surplus_of, self._session)
        if going is None or not self._journal.store.keeps_turns:
            return
        # The summary that the journal may have is of the surplus that was there first.
        _, first = await in_main_thread(self._journal.named_value, Place(name=self._call, key="surplus"), going.dump)
        if first["revision"] != going.revision:
            return
        going = replace(going, through=first["through"], is_tainted=first["is_tainted"] or going.is_tainted)
        summary = await self._summary_of(going, summarise)
        await self._step("shorten", partial(history.take_out, self._session, going, summary))

    async def _summary_of(self, going: Surplus, summarise: Summarise) -> str | None:
        if going.text is None:
            return None
        try:
            return await summarise(going.text, going.is_tainted)
        except (StepFailed, AgentRunError, Permanent) as error:
            # The session must not stand still because a model refuses to summarise it, or a budget never has room for that: what
            # is too much is dropped.
            log.warning("session.not_summarised", session=self._session, error=str(error)[:500])
            return None

    async def _step(self, name: str, act: Callable[[], Any]) -> None:
        request = StepRequest(place=Place(name=self._call, key=name))
        with self._steps.beside(request):
            begun = await in_main_thread(self._journal.begin, request)
            if not begun.is_recorded:
                await in_main_thread(self._journal.perform, begun, act)


def _summary(text: str, is_tainted: bool) -> list[ModelMessage]:
    if not text:
        return []
    told = fenced(SUMMARY, text, token_hex(8)) if is_tainted else f"{SUMMARY}\n\n{text}"
    return [ModelRequest(parts=[UserPromptPart(told)])]
