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
