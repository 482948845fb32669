from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"
    verbose_name = "What they do"
