from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now


class LoginFailure(models.Model):
    """Failed logins of late, counted by name and by where they came from (config.web.logins)."""

    name = models.TextField(help_text='a keyed hash of the user name; "" counts all names tried from there')
    origin = models.TextField(help_text="a network, or a browser that has logged in before")
    failures = models.PositiveIntegerField(default=1)
    since = models.DateTimeField(db_default=Now(), help_text="when the first of them was")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["name", "origin"], name="login_failures_once")]

    def __str__(self) -> str:
        return f"{self.failures} from {self.origin}"


class Total(models.Model):
    """A counter of /metrics, or a bucket or the sum of a histogram: what has been counted so far. It only rises."""

    metric = models.TextField()
    labels = ArrayField(models.TextField(), help_text="the values of its labels, in their order")
    value = models.FloatField()
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["metric", "labels"], name="total_once")]

    def __str__(self) -> str:
        return f"{self.metric} {self.labels}"


class CountedUntil(models.Model):
    """Up to where a table has been counted into totals."""

    what = models.TextField(primary_key=True)
    place = models.TextField(help_text="the id or the time of the last row, or of where counting began")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.what}: {self.place}"
