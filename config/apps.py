from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """The composition root: wires what lower rooms need from higher ones."""

    name = "config"

    def ready(self) -> None:
        from config import checks  # noqa: F401
        from runs.wiring import wiring
        from triggers.feedback import count_failures, record_emitted
        from triggers.reading import read_events

        wiring.read_events = read_events
        wiring.inside = {"event": record_emitted, "run.finished": count_failures}
