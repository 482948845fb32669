"""Triggers at which events ended in an error in the last day: filter, key or input failed, so they started no run."""

from datetime import timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from triggers.models import Decision, Trigger

LATELY = timedelta(days=1)
COUNTED = 1_000  # per trigger; an exact number above this has no use


def errors_of(trigger: Trigger | OuterRef) -> QuerySet[Decision]:
    """The trigger's decisions of the last day that are still errors."""
    is_error = Q(trigger=trigger, outcome=Decision.Outcome.ERROR)
    return Decision.objects.filter(is_error, created_at__gt=Now() - LATELY)


def erring() -> QuerySet[Trigger]:
    return Trigger.objects.filter(Exists(errors_of(OuterRef("pk"))), enabled=True)
