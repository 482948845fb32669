from django.db import models


class Entry(models.Model):
    """What one step wrote. Deliberately without a unique constraint: a second one must be seen, not refused."""

    run = models.UUIDField()
    step = models.TextField()

    def __str__(self) -> str:
        return f"{self.step} of {self.run}"
