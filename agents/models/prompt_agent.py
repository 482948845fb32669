from datetime import datetime

from django.db import models
from django.db.models import F, Max, Min, Q
from django.db.models.functions import Now


class PromptAgent(models.Model):
    """An agent that people made without code. Its versions say what it does; its triggers, checklist and budgets are those of any
    agent of its name."""

    name = models.TextField(unique=True)
    newest = models.PositiveIntegerField(
        default=1, help_text="number of its newest version, with which runs begin; edits compare it"
    )
    deleted_at = models.DateTimeField(null=True, help_text="since then no run of it starts or goes on")
    deleted_by = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ("view", "change")
        permissions = [("try_promptagent", "Can try prompt agents")]
        constraints = [
            models.CheckConstraint(name="prompt_agent_name", condition=Q(name__regex=r"^[a-z0-9][-a-z0-9_]{0,99}$"))
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_deleted(self) -> bool:
        return self.deleted_at is not None


class PromptAgentVersion(models.Model):
    """A version of a prompt agent's definition, written by one edit. It never changes, because runs that began with it
    end with it.
    """

    agent = models.ForeignKey(PromptAgent, models.PROTECT, related_name="versions", db_index=False)
    number = models.PositiveIntegerField()
    fingerprint = models.TextField(help_text="hash of the definition; runs record it as their version")
    definition = models.JSONField(help_text="see agents.prompt_agents.definition")
    by = models.TextField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["agent", "number"], name="prompt_agent_version_once")]

    def __str__(self) -> str:
        return f"version {self.number} of {self.agent_id}"

    @classmethod
    def acts_for(cls, agent: str) -> str | None:
        """The user by whose own connections the newest version of this agent acts, also of a deleted one; empty: by no one's. None: there
        is no such agent."""
        newest = cls.objects.filter(agent__name=agent, number=F("agent__newest"))
        found = list(newest.values_list("definition__acts_for", flat=True))
        return str(found[0] or "") if found else None

    @classmethod
    def own_since(cls, agent: str, user: str) -> datetime | None:
        """Since when this user alone has written its versions; None: since its first one."""
        versions = cls.objects.filter(agent__name=agent)
        last = versions.exclude(by=f"admin:{user}").aggregate(last=Max("number"))["last"]
        return versions.filter(number__gt=last).aggregate(since=Min("at"))["since"] if last else None
