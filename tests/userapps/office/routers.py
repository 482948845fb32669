from typing import Any


class EverythingToTheArchive:
    """Sends to another database whatever is not the office's own or Django's."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return (
            None
            if model._meta.app_label in ("office", "auth", "admin", "contenttypes", "sessions", "sites")
            else "archive"
        )

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return (
            db == "default" if app_label in ("office", "auth", "admin", "contenttypes", "sessions", "sites") else None
        )
