from importlib import import_module
from pkgutil import iter_modules

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules


class AgentsConfig(AppConfig):
    name = "agents"
    default_auto_field = "django.db.models.BigAutoField"  # whatever the project says

    def ready(self) -> None:
        autodiscover_modules("agents")
        for name in settings.WAKEFUL_LIBRARY:
            install(name)


def install(name: str) -> None:
    """Import an agent of the library, which registers it. ImproperlyConfigured: the library has no agent of this
    name.
    """
    library = import_module("agents.library")
    known = {module.name for module in iter_modules(library.__path__)} - {"agents", "apps", "models", "migrations"}
    file = name.replace("-", "_")
    if file not in known:
        agents = ", ".join(sorted(one.replace("_", "-") for one in known))
        raise ImproperlyConfigured(f"WAKEFUL_LIBRARY: there is no agent {name!r} in agents.library; it has {agents}")
    import_module(f"agents.library.{file}")
