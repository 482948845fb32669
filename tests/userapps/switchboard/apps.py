"""The bot's API of Telegram is a server of the test."""

import os

from django.apps import AppConfig


class SwitchboardConfig(AppConfig):
    name = "switchboard"

    def ready(self) -> None:
        from runs.notifications.places import telegram

        telegram.API = os.environ.get("SWITCHBOARD_TELEGRAM", telegram.API)
