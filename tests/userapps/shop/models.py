from django.db import models
from django.db.models.functions import Now


class Effect(models.Model):
    """What one run did. Deliberately without a unique constraint: a second effect must be seen, not refused."""

    event = models.UUIDField()
    agent = models.TextField()
    trigger = models.TextField()
    run = models.UUIDField()
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.agent} on {self.event}"


class FixedSwitch(models.Model):
    """Once there is a row, what failed succeeds."""

    def __str__(self) -> str:
        return "fixed"


class Shared(models.Model):
    """One row (id 1, by migration) that holders lock."""

    touched = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"touched {self.touched} times"
