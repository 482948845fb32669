"""Triggers at which events ended in an error in the last day: filter, key or input failed, so they started no run."""

from datetime import timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from runs.sign import is_raised
from triggers.models import Decision, Trigger

LATELY = timedelta(days=1)
COUNTED = 1_000  # per trigger; an exact number above this has no use

# Uses the index on (trigger, created_at), so that the cost does not depend on the length of the history. Counts errors only
# for triggers that are shown.
LATELY_IN_ERROR = """triggers_decision
    WHERE trigger_id = trigger.id AND outcome = 'error' AND created_at > (SELECT clock_timestamp()) - %(lately)s::interval"""
ERRING = f"""
SELECT trigger.slug, errors.count, extract(epoch FROM clock_timestamp() - errors.last)::float8 AS last,
  (SELECT left(reason, 300) FROM triggers_decision
   WHERE trigger_id = trigger.id AND outcome = 'error' AND created_at = errors.last LIMIT 1) AS reason
FROM (
  SELECT trigger.id, trigger.slug, {is_raised("'trigger-errors:' || trigger.slug")} AS is_raised
  FROM triggers_trigger trigger CROSS JOIN LATERAL (SELECT FROM {LATELY_IN_ERROR} LIMIT 1) one
  WHERE trigger.enabled ORDER BY is_raised DESC, trigger.slug LIMIT %(broken)s::int) trigger
CROSS JOIN LATERAL (
  SELECT count(*) AS count, max(created_at) AS last FROM (
    SELECT created_at FROM {LATELY_IN_ERROR} ORDER BY created_at DESC LIMIT %(errors_counted)s::int) newest) errors
ORDER BY trigger.is_raised DESC, trigger.slug
"""  # noqa: S608  (our own parts)


def errors_of(trigger: Trigger | OuterRef) -> QuerySet[Decision]:
    """The trigger's decisions of the last day that are still errors."""
    is_error = Q(trigger=trigger, outcome=Decision.Outcome.ERROR)
    return Decision.objects.filter(is_error, created_at__gt=Now() - LATELY)


def erring() -> QuerySet[Trigger]:
    return Trigger.objects.filter(Exists(errors_of(OuterRef("pk"))), enabled=True)
