from decimal import Decimal

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from .run import NIL


class Budget(models.Model):
    """A cap on what the runs of an agent, of a trigger, or all runs use: each of them, or together in an hour, day or month
    of UTC."""

    class Scope(models.TextChoices):
        INSTALLATION = "installation", "all runs"
        AGENT = "agent"
        TRIGGER = "trigger"

    class Period(models.TextChoices):
        RUN = "run", "each run"
        HOUR = "hour"
        DAY = "day"
        MONTH = "month"

    class Measure(models.TextChoices):
        USD = "usd", "US dollars"
        TOKENS = "tokens"
        REQUESTS = "requests", "model requests"
        TOOL_CALLS = "tool_calls", "tool calls"

    class AtCap(models.TextChoices):
        WAIT = "wait", "the run waits"
        FAIL = "fail", "the run fails"

    scope = models.TextField(choices=Scope)
    name = models.TextField(
        default="", blank=True, help_text="name of the agent, slug of the trigger; empty for all runs"
    )
    period = models.TextField(choices=Period)
    measure = models.TextField(choices=Measure)
    cap = models.DecimalField(null=True, blank=True, help_text="empty: no cap", max_digits=24, decimal_places=10)
    at_cap = models.TextField(choices=AtCap, default=AtCap.WAIT)
    declared = models.DecimalField(
        null=True,
        blank=True,
        editable=False,
        help_text="value in the code or in a setting at the last sync",
        max_digits=24,
        decimal_places=10,
    )
    counts_since = models.DateTimeField(db_default=Now(), editable=False, help_text="when the cap began to apply")

    class Meta:
        ordering = ["scope", "name", "period", "measure"]
        permissions = [("raise_budget", "Can change caps and allow more")]
        constraints = [
            models.UniqueConstraint(fields=["scope", "name", "period", "measure"], name="budget_one_per_scope"),
            models.CheckConstraint(name="budget_cap_not_negative", condition=Q(cap=None) | Q(cap__gte=0)),
            models.CheckConstraint(
                name="budget_scope_has_name",
                condition=Q(scope="installation", name="") | (Q(scope__in=["agent", "trigger"]) & ~Q(name="")),
            ),
            models.CheckConstraint(name="budget_period_known", condition=Q(period__in=["run", "hour", "day", "month"])),
            models.CheckConstraint(
                name="budget_measure_known", condition=Q(measure__in=["usd", "tokens", "requests", "tool_calls"])
            ),
            models.CheckConstraint(name="budget_at_cap_known", condition=Q(at_cap__in=["wait", "fail"])),
        ]

    def __str__(self) -> str:
        whose = "all runs" if self.scope == self.Scope.INSTALLATION else f"{self.scope} {self.name}"
        measured = "US dollars" if self.measure == self.Measure.USD else self.measure.replace("_", " ")
        return f"{whose}, {measured} per {self.period}"


class BudgetWindow(models.Model):
    """The amounts that a budget has spent and reserved in one hour, day or month, or for one run."""

    budget = models.ForeignKey(Budget, models.CASCADE, related_name="windows", db_index=False)
    run_id = models.UUIDField(default=NIL, help_text="of a budget for each run; else the nil UUID")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)
    spent = models.DecimalField(default=Decimal(0), max_digits=24, decimal_places=10)
    reserved = models.DecimalField(
        default=Decimal(0), help_text="by requests that are under way", max_digits=24, decimal_places=10
    )
    extra = models.DecimalField(
        default=Decimal(0), help_text="what a person allowed on top of the cap, once", max_digits=24, decimal_places=10
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["budget", "run_id", "starts_at"], name="budget_window_once"),
            models.CheckConstraint(
                name="budget_window_not_negative", condition=Q(spent__gte=0, reserved__gte=0, extra__gte=0)
            ),
        ]
        indexes = [
            models.Index(fields=["ends_at"], name="budget_window_by_end", condition=Q(ends_at__isnull=False)),
            models.Index(fields=["run_id"], name="budget_window_by_run", condition=~Q(run_id=NIL)),
        ]

    def __str__(self) -> str:
        return f"{self.budget} from {self.starts_at:%Y-%m-%d %H:%M}"


class Reservation(models.Model):
    """The most that a request under way may cost in a window. It is gone once the request is over."""

    window = models.ForeignKey(BudgetWindow, models.CASCADE, related_name="reservations")
    run_id = models.UUIDField()
    key = models.TextField(help_text="of the request's step, and a random number")
    claim = models.UUIDField(help_text="identity of the claim that made it")
    amount = models.DecimalField(max_digits=24, decimal_places=10)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(
        null=True, help_text="when the lease of a trial ends; a run has its claim as its lease"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run_id", "key", "window"], name="reservation_once"),
            models.CheckConstraint(name="reservation_not_negative", condition=Q(amount__gte=0)),
        ]

    def __str__(self) -> str:
        return f"{self.amount} for {self.key} of {self.run_id}"
