"""The engine of durable bodies: it records each step in a store, and gives the recorded outputs to a replay of the body.

It stands in layers, a file each: `commits` ← `replay` (order of entries, recorded outputs, waits) ← `spending` (room in budgets) ←
`steps` (begin, perform, complete, fail) ← this file, which holds sessions.

A transactional step and its entry are one commit. Another step is called first and recorded afterwards; an at_most_once step
has its intent committed before the call. An Interrupted stops the body before its end; after that this journal answers
nothing more.
"""

from itertools import count

from agents.exceptions import Permanent, SessionBusy
from agents.journal.begun import current
from agents.journal.protocol import EXPIRED, Place, SessionRequest, fitting
from agents.journal.steps import Steps
from agents.journal.store import Store
from agents.kernel.durations import in_words
from agents.kernel.effects import Effects


class Journal(Steps):
    """The journal of one execution of a body. Each method may raise an Interrupted, which nothing may catch."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.session = ""  # that the run holds

    @property
    def effects(self) -> Effects | None:
        """The effects of the running step; None outside of steps."""
        step = current.get()
        if step and step.is_over:
            raise Permanent(
                f"step {step.key!r} has ended, but a task that it started still runs: it can no longer emit, notify or spawn. "
                "Await the task in the step"
            )
        return step.effects if step else None

    @property
    def may_write(self) -> bool:
        step = current.get()
        return step is not None and step.request.effect == "transactional"

    def hold(self, session: str, call: str) -> None:
        """Hold a session for the turn of this call; wait for it where another run holds it. SessionBusy: it waited too long."""
        if self.session:
            raise Permanent(
                f"run.llm(session={session!r}) while another call takes a turn in session {self.session!r}: a run takes one turn "
                "at a time; await the other call first"
            )
        for number in count(1):
            try:
                busy = self.store.hold(session)
            except Exception as error:
                self._lost(error)
            if busy is None:
                self.session = session
                return
            place = Place(name="session", key=fitting(f"{number} {call}", "session"))
            request = SessionRequest(place=place, session=session, reason=busy.reason, timeout=busy.at_most)
            if self.wait(request) is EXPIRED:
                raise SessionBusy(f"{busy.reason}; this run has waited for {in_words(busy.at_most)}")

    def let_go(self) -> None:
        """The turn is over: another run may take the next one. Within a transaction call `has_let_go` after its commit: until
        then the run holds the session."""
        if self.session:
            self.store.let_go(self.session)
        if not self.may_write:
            self.has_let_go()

    def has_let_go(self) -> None:
        self.session = ""
