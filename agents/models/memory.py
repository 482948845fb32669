from django.contrib.postgres.search import SearchVector, SearchVectorField
from django.db import models
from django.db.models import F, Func, Value
from django.db.models.functions import Now

# Keys and texts are cut into words at each character that is no letter or digit: "host/db-1" is found by "db".
NO_WORD = "[^[:alnum:]]+"


def words_of(field: str) -> Func:
    parts = F(field), Value(NO_WORD), Value(" "), Value("g")
    return Func(*parts, function="regexp_replace", output_field=models.TextField())


class MemoryNote(models.Model):
    """A note that an agent keeps for its later runs; written by compare-and-set on `revision`."""

    agent = models.TextField()
    key = models.TextField()
    text = models.TextField()
    is_tainted = models.BooleanField(db_default=False, help_text="written by a run that had seen untrusted data")
    revision = models.PositiveBigIntegerField(default=1)
    run_id = models.UUIDField(null=True, help_text="the run that wrote it; null: a person did")
    by = models.TextField(default="", blank=True, help_text="the person who wrote it")
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    words = models.GeneratedField(
        expression=SearchVector(words_of("key"), words_of("text"), config="simple"),
        output_field=SearchVectorField(),
        db_persist=True,
    )

    class Meta:
        default_permissions = ("view", "change")
        constraints = [models.UniqueConstraint(fields=["agent", "key"], name="memory_note_key")]
        indexes = [models.Index(fields=["run_id"], name="memory_note_of_run")]

    def __str__(self) -> str:
        return f"{self.agent}: {self.key}"
