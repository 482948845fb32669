"""Triggers at which events have lately ended in an error: their filter, key or input fails, so these events started no run."""

from datetime import timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from runs.alarms import is_raised
from triggers.models import Decision, Trigger

LATELY = timedelta(days=1)
COUNTED = 1_000  # of one trigger's: the exact number above it is of no use

# By the index on (trigger, created_at), so that a look costs the same however long the history is; the errors of those alone
# that are shown are counted.
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
    """Its decisions of late that are errors still."""
    is_error = Q(trigger=trigger, outcome=Decision.Outcome.ERROR)
    return Decision.objects.filter(is_error, created_at__gt=Now() - LATELY)


def erring() -> QuerySet[Trigger]:
    return Trigger.objects.filter(Exists(errors_of(OuterRef("pk"))), enabled=True)
