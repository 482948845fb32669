"""An agent that is durable in version 2 and atomic in every other version; its effects say which code left them."""

import os

from shop.models import Effect

from agents import AgentRun, agent, on

SAYS = [on.event("pay.*")]


def leave_effect(run: AgentRun, by: str) -> None:
    Effect.objects.create(event=run.event.id, agent=by, trigger=run.trigger, run=run.id)


if os.environ.get("WAKEFUL_VERSION") == "2":

    @agent("pay", durable=True, triggers=SAYS)
    def pay(run: AgentRun) -> str:
        """Charges, and sends a receipt once the charge is settled."""
        run.step("charge", leave_effect, run, "durable: charge")
        run.wait_for_event("settled", match={"of": str(run.event.id)})
        run.step("receipt", leave_effect, run, "durable: receipt")
        return "by durable code"

else:

    @agent("pay", triggers=SAYS, retries=3)
    def pay(run: AgentRun) -> str:
        """Charges; fails as often as its event sets."""
        leave_effect(run, "atomic")
        if run.attempt <= run.event.data.get("fails", 0):
            raise RuntimeError("the bank is closed")
        return "by atomic code"
