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


class Deed(models.Model):
    """What a transactional step of a durable agent did and committed. Without a unique constraint, for the same reason."""

    run = models.UUIDField()
    step = models.TextField(help_text="its key in the journal")
    approval = models.UUIDField(null=True, help_text="the approval on whose strength it was done")
    arguments = models.JSONField(null=True, help_text="what was approved")

    def __str__(self) -> str:
        return f"{self.step} of {self.run}"


class Call(models.Model):
    """A call that the receiver outside reports; the suite writes these down before it checks."""

    path = models.TextField()
    run = models.UUIDField()
    step = models.TextField(help_text="its key in the journal: the rest of the idempotency key")
    said = models.JSONField()

    def __str__(self) -> str:
        return f"{self.path} of {self.run}:{self.step}"


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
