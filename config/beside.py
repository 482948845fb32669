"""Wakeful's settings beside those of a project: what a module such as shop/wakeful.py takes from the project's own settings.

from config.beside import settings_of
from config.settings import *
from shop import settings as project

globals().update(settings_of(project, globals()))
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from django.apps import AppConfig
from django.conf import global_settings
from django.core.exceptions import ImproperlyConfigured

from config.labels import require_free_labels

POSTGRESQL = "django.db.backends.postgresql"
HASHER, OURS = "django.contrib.auth.hashers.PBKDF2PasswordHasher", "config.web.passwords.BoundedHasher"
# Of Wakeful's own processes and of its console, which is a site of its own: at other addresses, behind another proxy or none.
NEVER = ("CELERY_", "SESSION_", "CSRF_", "SECURE_", "WAKEFUL_", "UNFOLD")
LEFT_OUT = (
    "WSGI_APPLICATION",
    "ASGI_APPLICATION",
    "FORM_RENDERER",
    "STATIC_ROOT",
    "USE_TZ",
    "PREPEND_WWW",
    "APPEND_SLASH",
    "FORCE_SCRIPT_NAME",
    "USE_X_FORWARDED_HOST",
    "USE_X_FORWARDED_PORT",
    "DISALLOWED_USER_AGENTS",
    "X_FRAME_OPTIONS",
    "SECRET_KEY_FALLBACKS",
    "USE_THOUSAND_SEPARATOR",  # ids and years are in links
)
# What Wakeful's settings have as well, and the project's are the better ones for.
THEIRS = ("DEFAULT_AUTO_FIELD", "TIME_ZONE", "AUTH_PASSWORD_VALIDATORS")


def settings_of(project: ModuleType, ours: Mapping[str, Any], *, without: Sequence[str] = ()) -> dict[str, Any]:
    """What Wakeful's settings `ours` take from those of the project: its apps but for those named in `without`, its user model, caches,
    files, mail, language, time zone, other databases and their routers, and whatever only the project knows."""
    given = {name: value for name, value in vars(project).items() if name.isupper()}
    taken = {name: value for name, value in given.items() if name in THEIRS or (name not in ours and _is_taken(name))}
    taken.setdefault("DEFAULT_AUTO_FIELD", global_settings.DEFAULT_AUTO_FIELD)
    apps = apps_of(given.get("INSTALLED_APPS", ()), ours["INSTALLED_APPS"], without)
    require_free_labels(apps, f"INSTALLED_APPS of {project.__name__}")
    routers = [*ours["DATABASE_ROUTERS"], *given.get("DATABASE_ROUTERS", ())]
    taken |= {"INSTALLED_APPS": [*ours["INSTALLED_APPS"], *apps], "DATABASE_ROUTERS": routers}
    taken["WAKEFUL_PROJECT"] = project.__name__
    databases = given.get("DATABASES", {})
    if default := databases.get("default"):
        taken["WAKEFUL_PROJECT_DATABASE"] = {name: default.get(name) for name in ("ENGINE", "NAME", "HOST", "PORT")}
        engine = default.get("ENGINE") or POSTGRESQL
        mine = {**ours["DATABASES"]["default"], **({"ENGINE": engine} if is_postgresql(engine) else {})}
        taken["DATABASES"] = {**databases, "default": mine}
    backends = [
        name for name in given.get("AUTHENTICATION_BACKENDS", ()) if name not in ours["AUTHENTICATION_BACKENDS"]
    ]
    taken["AUTHENTICATION_BACKENDS"] = [*ours["AUTHENTICATION_BACKENDS"], *backends]
    if hashers := given.get("PASSWORD_HASHERS"):  # in their order: a login writes the hash again, in the first of them
        taken["PASSWORD_HASHERS"] = [OURS if name == HASHER else name for name in hashers]
    if storages := given.get("STORAGES"):  # files of ours are not collected, so no manifest knows them
        taken["STORAGES"] = {**storages, "staticfiles": ours["STORAGES"]["staticfiles"]}
    taken["STATICFILES_DIRS"] = [*ours["STATICFILES_DIRS"], *given.get("STATICFILES_DIRS", ())]
    if folders := [folder for engine in given.get("TEMPLATES", ()) for folder in engine.get("DIRS", ())]:
        first, *rest = ours["TEMPLATES"]
        taken["TEMPLATES"] = [{**first, "DIRS": [*first["DIRS"], *folders]}, *rest]
    return taken


def apps_of(theirs: Sequence[str], ours: Sequence[str], without: Sequence[str] = ()) -> list[str]:
    """Of the project's INSTALLED_APPS those that Wakeful's do not have."""
    known = {_name_of(entry) for entry in ours} | {*without}
    return [entry for entry in theirs if entry not in known and _name_of(entry) not in known]


def app_of(entry: str) -> str:
    """The module of the app that an entry of INSTALLED_APPS stands for: `django.contrib.admin` of an admin with a site of its own."""
    try:
        return AppConfig.create(entry).name
    except (ImportError, ImproperlyConfigured):
        return entry


def is_postgresql(engine: str) -> bool:
    """Whether a backend is Django's for PostgreSQL, or made of it, such as PostGIS and those of django-tenants and django-prometheus."""
    return engine.rsplit(".", 1)[-1] in (
        "postgis",
        "postgresql",
        "postgresql_psycopg2",
        "postgresql_backend",
        "timescale",
    )


def _is_taken(name: str) -> bool:
    return name not in LEFT_OUT and not name.startswith(NEVER)


def _name_of(entry: str) -> str:
    """`django.contrib.admin` of `django.contrib.admin.apps.AdminConfig`."""
    return entry.partition(".apps.")[0]
