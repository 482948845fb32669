from typing import Any

from .exceptions import StateConflict


class State:
    """An agent's values between runs, by name; read and written in the run's own transaction."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._revisions: dict[str, int] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """The value as last committed, or as this run has set it."""
        row = self._rows().filter(name=name).values_list("value", "revision").first()
        self._revisions[name] = row[1] if row else 0
        return row[0] if row else default

    def set(self, name: str, value: Any) -> None:
        """Write a JSON value; StateConflict (a retry) if another run wrote it after this one read it."""
        from django.db.models import F
        from django.db.models.functions import Now

        from .models import AgentState

        seen = self._revisions.get(name)
        if seen is None:
            self.get(name)
            seen = self._revisions[name]
        if seen == 0:
            _, written = AgentState.objects.get_or_create(agent=self._agent, name=name, defaults={"value": value})
        else:
            changed = (
                self._rows()
                .filter(name=name, revision=seen)
                .update(value=value, revision=F("revision") + 1, updated_at=Now())
            )
            written = changed == 1
        if not written:
            raise StateConflict(f"state {name!r} of agent {self._agent!r} was changed by another run")
        self._revisions[name] = seen + 1

    def _rows(self) -> Any:
        from .models import AgentState

        return AgentState.objects.filter(agent=self._agent)
