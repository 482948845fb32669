"""Wakeful's tables are in the database `default`, whatever the routers of the project say of their own."""

from typing import Any

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS

LABELS = frozenset({"agents", "runs", "triggers", "config", "django_celery_beat", "django_celery_results"})
LIBRARY = "agents.library"  # without it, an app `library` is the project's


def is_ours(label: str) -> bool:
    return label in LABELS or (label == "library" and apps.is_installed(LIBRARY))


class OursAreInDefault:
    """The first of DATABASE_ROUTERS: a later one may send what is read to a replica, which lags behind."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return DEFAULT_DB_ALIAS if is_ours(model._meta.app_label) else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == DEFAULT_DB_ALIAS if is_ours(app_label) else None
