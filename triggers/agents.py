"""The agent of Django's tasks, where TASKS of the settings has Wakeful's backend. `agents.apps` imports this file of each app."""

from django.conf import settings
from django.utils.module_loading import import_string


def _has_backend() -> bool:
    """Django has no tasks before 6.0, and no setting of them."""
    named = {one.get("BACKEND", "") for one in getattr(settings, "TASKS", {}).values()}
    return any(_is_ours(name) for name in named if name and not name.startswith("django.tasks."))


def _is_ours(name: str) -> bool:
    try:
        from triggers.django_tasks.backend import TaskBackend

        return issubclass(import_string(name), TaskBackend)
    except ImportError:  # Django reports it, where the backend is used
        return False


if _has_backend():
    from triggers.django_tasks import agent  # noqa: F401  (importing it registers the agent)
