from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"
    default_auto_field = "django.db.models.BigAutoField"  # whatever the project says
    verbose_name = "What they do"

    def ready(self) -> None:
        from runs.db import any_lookup, outage  # noqa: F401  (they register a lookup and an execute wrapper)
