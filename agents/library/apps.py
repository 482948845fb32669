from django.apps import AppConfig


class LibraryConfig(AppConfig):
    name = "agents.library"
    default_auto_field = "django.db.models.BigAutoField"  # whatever the project says
    label = "library"
    verbose_name = "Agent library"
