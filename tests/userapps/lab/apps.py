import os
from importlib import import_module

from django.apps import AppConfig


class LabConfig(AppConfig):
    name = "lab"

    def ready(self) -> None:
        # A build that is broken on purpose, in this process alone; or time that is passed more quickly.
        for module in filter(None, os.environ.get("LAB_PATCHES", "").split(",")):
            name, _, argument = module.partition(":")
            getattr(import_module("lab.sabotage"), name)(*([argument] if argument else []))
