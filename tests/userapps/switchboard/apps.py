"""The bot's API of Telegram is a server of the test, whose address stands in a file beside WAKEFUL_HOME: processes that are forked from a
prepared one get to know it late."""

from pathlib import Path

from django.apps import AppConfig
from django.conf import settings


class Api:
    def __format__(self, spec: str) -> str:
        return (Path(settings.WAKEFUL_HOME).parent / "telegram").read_text()


class SwitchboardConfig(AppConfig):
    name = "switchboard"

    def ready(self) -> None:
        from runs.notifications.places import telegram

        telegram.API = Api()
