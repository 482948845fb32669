from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class AgentsConfig(AppConfig):
    name = "agents"

    def ready(self) -> None:
        autodiscover_modules("agents")
