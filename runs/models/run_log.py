from django.db import models

from .run import Run


class RunLog(models.Model):
    """Lines that a body wrote to `run.log`, as one commit of its claim took them along. Deleted with the run, by the database."""

    pk = models.CompositePrimaryKey("run_id", "epoch", "number")
    run = models.ForeignKey(Run, models.CASCADE, related_name="log", db_index=False, db_constraint=False)
    epoch = models.PositiveIntegerField(help_text="the claim that wrote them")
    number = models.PositiveIntegerField(help_text="lines of the claim before them")
    count = models.PositiveIntegerField()
    size = models.PositiveIntegerField(help_text="bytes")
    dropped = models.PositiveIntegerField(help_text="lines beyond the bounds of a commit")
    content = models.JSONField(help_text="of each line: time, level, text, values, traceback")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.count} lines of {self.run_id}"
