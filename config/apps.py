from django.apps import AppConfig
from django.conf import settings

from agents import telemetry


class ConfigConfig(AppConfig):
    """The composition root: connects what lower rooms need from higher ones."""

    name = "config"
    default_auto_field = "django.db.models.BigAutoField"  # whatever the project says

    def ready(self) -> None:
        from config import checks, fits, wiring  # noqa: F401  (checks and fits register them with Django)
        from config.celery import app
        from config.web import logins  # noqa: F401  (receivers of Django's signals)

        # A project makes an app of its own as soon as its package is imported, and Celery takes the newest one.
        app.set_current()
        app.set_default()

        wiring.connect()
        if settings.OTEL_EXPORTER_OTLP_ENDPOINT and not settings.OTEL_SDK_DISABLED:
            telemetry.switch_on(
                service=settings.OTEL_SERVICE_NAME,
                endpoint=settings.OTEL_EXPORTER_OTLP_ENDPOINT,
                headers=settings.OTEL_EXPORTER_OTLP_HEADERS,
                keeps_content=settings.OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT,
            )
