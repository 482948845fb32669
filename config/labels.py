"""The labels of apps, which are unique among all of them: tables, permissions and migrations have them in their names. Django's own error
names the label alone, before any check runs."""

from collections.abc import Iterable

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured

OURS = frozenset({"agents", "runs", "triggers", "config"})


def require_free_labels(apps: Iterable[str], where: str) -> None:
    """ImproperlyConfigured: an app of the project has the label of an app of Wakeful's."""
    for entry in apps:
        if may_collide(entry) and (label := label_of(entry)) in OURS:
            name = entry.partition(".apps.")[0]
            raise ImproperlyConfigured(
                f"{entry} in {where} has the label {label!r}, which an app of Wakeful's has: Django wants the labels of all apps to be "
                "different, as tables and migrations are named after them. Either leave it out of Wakeful's processes "
                f"(settings_of(project, globals(), without=[{entry!r}])) if it has no tables in this schema and no other app refers to "
                f"its models, or give its AppConfig another label (label = {name.replace('.', '_')!r}, and Meta.db_table for tables that "
                "exist), or give Wakeful a schema of its own. See docs/beside-your-project.md#an-app-with-a-label-of-wakefuls."
            )


def may_collide(entry: str) -> bool:
    """By its text: an app that cannot is not imported while settings are read."""
    name, _, config = entry.partition(".apps.")
    return name.rpartition(".")[2] in OURS or config.removesuffix("Config").lower() in OURS


def label_of(entry: str) -> str:
    try:
        return AppConfig.create(entry).label
    except Exception:  # Django reports it, with all settings at hand
        return ""
