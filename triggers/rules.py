"""The triggers as the dispatcher sees them, read from their table and kept until it changes."""

from typing import Any

from runs.policy import Policy, nature_of
from runs.sql import fetch
from triggers.expressions import compile_each
from triggers.intake import Intake
from triggers.matching import Index, Rule
from triggers.models import Trigger

# Of what a rule is made of, read from the rows themselves: no edit is missed, by whatever way it came.
FINGERPRINT = """
SELECT count(*), coalesce(sum(hashtextextended(ROW(
  id, slug, agent, source, types, filter, input, key, key_limit, overlap, policy, enabled, paused_at, paused_reason)::text, 0)), 0)
FROM triggers_trigger
"""


class Rules:
    """The triggers, indexed; reloaded when the table has changed."""

    def __init__(self) -> None:
        self.fingerprint: Any = None
        self.index = Index([])

    def have_changed(self) -> bool:
        """Has somebody edited a trigger since they were read? Then they are read anew the next time."""
        if fetch(FINGERPRINT)[0] == self.fingerprint:
            return False
        self.fingerprint = None
        return True

    def current(self) -> Index:
        """As last read: what is decided by it counts only if they have not changed, looked at under the dispatch lock."""
        if self.fingerprint is None:
            [fingerprint] = fetch(FINGERPRINT)
            self.index = Index(rule_of(trigger) for trigger in Trigger.objects.all())
            self.fingerprint = fingerprint  # last: where reading them fails they are read again
        return self.index


def rule_of(trigger: Trigger) -> Rule:
    try:
        policy, intake, problem = (
            Policy.load({**trigger.policy, **nature_of(trigger.agent), "overlap": trigger.overlap}),
            Intake.load(trigger.policy),
            "",
        )
    except ValueError as error:
        policy, intake, problem = Policy(), Intake(), str(error)
    return Rule(
        id=trigger.id,
        slug=trigger.slug,
        agent=trigger.agent,
        source=trigger.source,
        types=tuple(trigger.types),
        filter=trigger.filter,
        input=trigger.input,
        key=trigger.key,
        key_limit=trigger.key_limit,
        overlap=trigger.overlap,
        policy=policy,
        intake=intake,
        problem=problem,
        enabled=trigger.enabled,
        paused_reason=trigger.paused_reason if trigger.is_paused else None,
        compiled=compile_each((trigger.filter, trigger.key, *trigger.input.values())),
    )
