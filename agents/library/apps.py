from django.apps import AppConfig


class LibraryConfig(AppConfig):
    name = "agents.library"
    label = "library"
    verbose_name = "Agent library"
