from django.db import models


class Effect(models.Model):
    """What one attempt of a run did and committed. Deliberately without a unique constraint: a second effect must be
    seen, not refused. Times are the database's clock, inside the body's transaction."""

    event = models.UUIDField(null=True)
    agent = models.TextField()
    trigger = models.TextField()
    run = models.UUIDField()
    attempt = models.IntegerField()
    events = models.IntegerField(default=1, help_text="how many events the run had")
    key = models.TextField(default="")
    number = models.IntegerField(null=True, help_text="the event's place in its sender's order")
    emitted = models.IntegerField(default=0)
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.agent} on {self.event}"


class Shared(models.Model):
    """Rows that several agents lock."""

    touched = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"touched {self.touched} times"


class Note(models.Model):
    """What an ordinary periodic task leaves."""

    at = models.DateTimeField()

    def __str__(self) -> str:
        return self.at.isoformat()
