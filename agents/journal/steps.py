"""The steps of a body: each begins, is performed, and completes or fails."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from agents.exceptions import Permanent, Retry, StepFailed, describe, is_permanent
from agents.guards.network import network_refused
from agents.guards.storable import shown, storable
from agents.journal.begun import Begun, Undone, current, doing_step
from agents.journal.budget import NoRoom
from agents.journal.canonical import as_read
from agents.journal.ends import Interrupted, TriedAgain
from agents.journal.entries import RecordedStep
from agents.journal.protocol import StepRequest
from agents.journal.spending import Spending
from agents.kernel.effects import Effects

LOST_ANSWER = (
    "The answer is paid and lost, and neither a retry nor a requeue asks the model again: raise WAKEFUL_MAX_OUTPUT, then fork the run "
    "at this step, which asks and pays once more"
)


def too_large(key: str, text: str, most: int, *, is_paid: bool) -> Permanent | None:
    """Why this output of a step cannot be stored."""
    size = len(text.encode())
    if size <= most:
        return None
    way_out = LOST_ANSWER if is_paid else "Store it elsewhere and return its location"
    return Permanent(f"the output of step {key!r} has {size:,} bytes; WAKEFUL_MAX_OUTPUT allows {most:,}. {way_out}")


class Steps(Spending):
    """`begin` returns the `begun` of the other methods."""

    def begin(self, request: StepRequest, leave: Callable[[Begun], None] | None = None) -> Begun:
        """Begin a step, or look up its recorded outcome; StepFailed if that is an error. `leave` is called before it begins here, and
        may leave it to another process (`leave_request`)."""
        with self.lock:
            key = self._ask(request.place)
            known = self.store.step(key, request) or self.made.get(key)
            if self.store.is_binding and key in self.store.waits:
                self._park(f"its journal has {key!r} as a wait, but the code asks for a step")
            begun = self._known(known, request) if known else self._new(key, request)
        if not begun.is_recorded:
            self._check(begun)
            if leave:
                leave(begun)
            self._commit_intent(begun)
        return begun

    @contextmanager
    def inside(self, begun: Begun) -> Iterator[None]:
        """Within, the body of the step runs, in this thread or in a task."""
        token = current.set(begun)
        try:
            with self.places.occupied(), doing_step(begun):
                yield
        finally:
            begun.is_over = True
            current.reset(token)

    def perform(self, begun: Begun, body: Callable[[], Any]) -> Any:
        """Run the step and record its outcome; return the output as a replay will get it."""
        try:
            if begun.request.effect == "transactional":
                return self._perform_in_transaction(begun, body)
            with self.inside(begun), self._limit(begun):
                output = body()
        except Undone as undone:
            begun.effects, output = Effects(), undone.output
        except Exception as error:
            failure = self.fail(begun, error)
            raise failure from (None if failure is error else error)
        finally:
            self._leave_thread()
        return self.complete(begun, output)

    def complete(self, begun: Begun, output: Any) -> Any:
        """Record the output of a step whose body has run."""
        self.store.reach("after_call")
        try:
            text = self._text(begun, output)
        except Permanent as error:
            if begun.request.kind == "model":  # paid, so only a person has it made once more
                begun.request = replace(begun.request, effect="at_most_once")
            raise self.fail(begun, error) from error
        try:
            is_wanted_back = self._commit([begun.entry("done", output=as_read(text))], self._effects_of(begun))
        except Permanent as error:  # its effects are invalid
            raise self.fail(begun, error) from error
        except Exception as error:
            if begun.request.effect == "at_most_once":
                # The call happened. Record that even if another process owns the run now.
                self.store.record_late(begun.key, text, self._effects_of(begun))
            self._lost(error)
        finally:
            self._leave_thread()
        self.store.reach("after_step_commit")
        self._go_on(is_wanted_back)
        return as_read(text)

    def fail(self, begun: Begun, error: Exception) -> Exception:
        """Record that the step failed; return the exception to raise."""
        if isinstance(error, NoRoom):
            return self._without_room(begun, error)
        meant = self.store.explain(begun.key, error)
        if isinstance(meant, Interrupted):
            self._stop(meant, cause=error)
        if begun.request.effect == "at_most_once" and not is_permanent(meant):
            if isinstance(meant, Retry):
                try:
                    self.store.forget(begun.key)
                except Exception as lost:
                    self._lost(lost)
                return meant
            self._park(f"step {begun.key!r} raised {describe(meant)}; it is unknown whether it happened")
        if isinstance(meant, Retry):
            return meant
        return self._record_failure(begun, meant)

    def withdraw(self, begun: Begun) -> None:
        """The step has not happened, and the code may reach it again: its body began something else first."""
        with self.lock:
            self.places.forget(begun.key)

    def has_outcome(self, known: RecordedStep) -> bool:
        """Is a replay given what is recorded? The failure of a step that may be repeated, and that nothing followed, is not an
        outcome: the step is made once more."""
        return known.status != "failed" or known.effect == "at_most_once" or known.position < self.last

    # Beginning

    def _new(self, key: str, request: StepRequest) -> Begun:
        self._expect(key, is_keyed=bool(request.place.key))
        return Begun(key, self._next_position(), bool(request.place.key), request)

    def _known(self, known: RecordedStep, request: StepRequest) -> Begun:
        begun = Begun(known.key, known.position, known.is_keyed, request)
        if known.status == "done":
            self.store.recalled(known.key, request.effect)
            begun.is_recorded, begun.output = True, known.output
        elif known.status == "started":
            self._park(
                f"step {known.key!r} has begun and not ended; it is unknown whether it happened", unproved=known.key
            )
        elif self.has_outcome(known):
            self.store.recalled(known.key, request.effect)
            raise known.failure
        else:
            # What has failed under another effect is no attempt of a step that may be made once.
            begun.attempts = 1 if request.effect == "at_most_once" else known.attempts + 1
        return begun

    def _check(self, begun: Begun) -> None:
        """Check that the step may run here."""
        if self.store.in_transaction:
            raise Permanent(
                f"step {begun.key!r} inside transaction.atomic(): call it outside, a step commits by itself"
            )
        if obstacle := self.store.obstacle(begun.key, begun.request):
            self._stop(obstacle)
        self._spend(begun)
        if begun.request.effect == "at_most_once" or begun.request.kind != "step":
            begun.arguments = shown(begun.request.arguments)

    def _commit_intent(self, begun: Begun) -> None:
        """Commit the intent of the step, or values that it may pass on."""
        if begun.request.effect == "at_most_once":
            self._commit_alone(begun.entry("started"))
            self.store.reach("after_intent_commit")
        elif begun.request.effect == "idempotent" and self.pending:
            # A repeated call must pass the same values.
            self._commit_alone()

    # Recording

    def _perform_in_transaction(self, begun: Begun, body: Callable[[], Any]) -> Any:
        with self.store.transaction(begun.key):
            with self.inside(begun), network_refused(self.store.agent, begun.key), self._limit(begun):
                output = body()
            self.store.reach("after_step_body")
            text = self._text(begun, output)
            drawn = self._drawn()
            done = begun.entry("done", output=as_read(text))
            is_wanted_back = self.store.write([*drawn, done], self._effects_of(begun), at="before_step_commit")
        self._is_written([*drawn, done])
        self.store.reach("after_step_commit")
        self._go_on(is_wanted_back)
        return as_read(text)

    def _effects_of(self, begun: Begun) -> Effects:
        if self.store.is_tainted:
            begun.effects.taint()
        return begun.effects

    def _record_failure(self, begun: Begun, error: Exception) -> Exception:
        kind, message = type(error).__name__, describe(error).partition(": ")[2]
        with self.lock:
            if begun.position < self.position:
                # Steps that ran beside it did not depend on it: place its failure behind them, so that it is retried.
                self.position += 1
                begun.position = self.position
        failed = begun.entry("failed", error=message, error_kind=kind, is_permanent=is_permanent(error))
        if not failed.is_permanent and begun.attempts <= begun.request.retries:
            self._stop(TriedAgain(failed, begun.request.retries + 1, error, self.pending, begun.try_again_after))
        self._commit_alone(failed)
        return StepFailed(begun.key, kind, message, permanent=failed.is_permanent)

    def _text(self, begun: Begun, output: Any) -> str:
        text = json.dumps(storable(output, f"the output of step {begun.key!r}"), ensure_ascii=False)
        if error := too_large(begun.key, text, self.store.max_output, is_paid=begun.request.kind == "model"):
            raise error
        return text

    def _limit(self, begun: Begun) -> AbstractContextManager[None]:
        seconds = begun.request.seconds
        return nullcontext() if seconds is None else self.store.limit(begun.key, seconds)

    def _leave_thread(self) -> None:
        """End the database session of a thread of the body after its step: nothing else would."""
        if not self.places.is_own_thread:
            self.store.leave_thread()
