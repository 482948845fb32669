from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agents.models.checklist import Checklist
from agents.models.prompt_agent import PromptAgent


class PageFile(models.Model):
    """A file below WAKEFUL_WORK_ROOTS with the page of a checklist, or of the instructions of a prompt agent."""

    checklist = models.OneToOneField(Checklist, models.CASCADE, null=True, related_name="page_file")
    prompt_agent = models.OneToOneField(PromptAgent, models.CASCADE, null=True, related_name="page_file")
    path = models.TextField(unique=True)
    digest = models.TextField(
        default="", blank=True, help_text="of the file when it was last taken or written; empty: not yet"
    )
    number = models.PositiveIntegerField(default=0, help_text="the revision or version that it had then")
    by = models.TextField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [
            models.CheckConstraint(
                name="page_file_of_one",
                condition=Q(checklist=None, prompt_agent__isnull=False) | Q(checklist__isnull=False, prompt_agent=None),
            )
        ]

    def __str__(self) -> str:
        return self.path
