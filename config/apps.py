from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """The composition root: connects what lower rooms need from higher ones."""

    name = "config"

    def ready(self) -> None:
        from config import checks, wiring  # noqa: F401  (checks registers them with Django)
        from config.web import logins  # noqa: F401  (receivers of Django's signals)

        wiring.connect()
