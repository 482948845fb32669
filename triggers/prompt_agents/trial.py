"""Try a prompt agent now: a shadow run that calls its model. It shows the verdict and what would be sent, and sends
nothing.
"""

from typing import Any
from uuid import uuid4

from agents.models import PromptAgent
from agents.prompt_agents import catalog
from runs.claim import Claim
from runs.exceptions import IllegalState
from runs.models.audit import record
from runs.models.policy import Policy
from runs.shadow.shadow import Shadow, shadow
from runs.shadow.trial import TrialStore
from triggers.dispatch.rules import rule_of
from triggers.models import Trigger
from triggers.prompt_agents.edit import newest_of


def try_prompt_agent(agent: PromptAgent, *, data: Any = None, by: str) -> Shadow:
    """Execute its newest version on all items of its checklist, with `data` as if of an event. It costs what its model costs, within
    its budgets, and calls tools that only read; another call or a wait ends it. IllegalState: it is deleted, or acts by
    the connections of another person.

    Call it in the main thread of a process of its own, outside of transactions."""
    if agent.is_deleted:
        raise IllegalState(f"Prompt agent {agent} is deleted. Restore it first.", status="deleted")
    acts_for = newest_of(agent).definition.get("acts_for")
    if acts_for and by != f"admin:{acts_for}":
        raise IllegalState(f"{agent} acts by connections of {acts_for}, who alone may try it.", status="refused")
    catalog.refresh(at_once=True)
    claim = _claim(agent, data)
    record(by, "try", agent, version=agent.newest, trial=str(claim.run_id))  # also of one that is killed
    trial = TrialStore(claim)
    try:
        return shadow(claim, trial=trial)
    finally:
        trial.close()
        used = {measure: str(amount) for measure, amount in trial.used.items() if amount}
        record(by, "tried", agent, version=agent.newest, trial=str(claim.run_id), used=used)


def _claim(agent: PromptAgent, data: Any) -> Claim:
    trigger = Trigger.objects.filter(agent=agent.name).order_by("-enabled", "slug").first()
    version = newest_of(agent).fingerprint
    run_id = uuid4()
    return Claim(
        run_id=run_id,
        epoch=0,
        id=uuid4(),
        attempt=1,
        agent=agent.name,
        begun_version=version,
        trigger=trigger.slug if trigger else "",
        trigger_id=trigger.pk if trigger else None,
        event_ids=[],
        input=data,
        policy=rule_of(trigger).policy if trigger else Policy.of_agent(catalog.begun(agent.name, version)),
        root_id=run_id,
        depth=0,
        key=None,
        slot=None,
    )
