from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"
    verbose_name = "What they do"

    def ready(self) -> None:
        from runs import among  # noqa: F401  (registers the lookup)
