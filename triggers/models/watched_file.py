from django.db import models
from django.db.models.functions import Now

from .source import Source


class WatchedFile(models.Model):
    """A file or object of a source, as it was when it was last recorded. Written with its events; the next look is compared with it.

    Names are bytes: those of files need not be text."""

    source = models.ForeignKey(Source, models.CASCADE, related_name="files", db_index=False)
    folder = models.BinaryField(help_text="below the directory of the source; empty: that itself, and for objects")
    name = models.BinaryField()
    size = models.BigIntegerField()
    mtime_ns = models.BigIntegerField(db_default=0)
    ctime_ns = models.BigIntegerField(db_default=0)
    inode = models.BigIntegerField(db_default=0)
    fingerprint = models.TextField(blank=True, help_text="empty: its content was not read yet")
    is_reported = models.BooleanField(help_text="false: it could not be read, and has no event")
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["source", "folder", "name"], name="watched_file_once")]
        indexes = [models.Index(fields=["source", "inode"], name="watched_file_by_inode")]

    def __str__(self) -> str:
        return f"{bytes(self.name).decode(errors='backslashreplace')} of {self.source_id}"
