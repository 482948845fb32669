"""Django system checks: whether the settings of a project fit those of Wakeful, which stands beside it."""

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.db import connection

from config.checks import SETTINGS
from config.routing import OursAreInDefault

ROUTER = f"{OursAreInDefault.__module__}.{OursAreInDefault.__qualname__}"
GUIDE = "See docs/beside-your-project.md."
SECOND_FACTORS = ("django_otp", "two_factor", "allauth.mfa", "mfa", "django_mfa2")


@register(SETTINGS)
def time_zones(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    if not settings.USE_TZ:
        yield Error(
            "USE_TZ is off.",
            hint=f"Leave it on in the settings of Wakeful's processes: every time of theirs has a zone. {GUIDE}",
            id="wakeful.E040",
        )


@register(SETTINGS)
def engine(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    if connection.vendor != "postgresql":
        yield Error(
            f"The database default is {connection.display_name}.",
            hint=f"Set an ENGINE that is Django's for PostgreSQL or made of it, such as PostGIS. {GUIDE}",
            id="wakeful.E041",
        )


@register(SETTINGS)
def routers(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    named = settings.DATABASE_ROUTERS
    if len(named) > 1 and named[0] != ROUTER:
        yield Error(
            f"The first of DATABASE_ROUTERS is {named[0]}: it may send Wakeful's tables to another database, or reads to a replica.",
            hint=f"Put {ROUTER!r} first. {GUIDE}",
            id="wakeful.E042",
        )


@register(SETTINGS)
def project_database(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    theirs = settings.WAKEFUL_PROJECT_DATABASE
    mine = settings.DATABASES["default"]
    names = ("NAME", "HOST", "PORT")
    if theirs and any(_plain(theirs.get(name)) != _plain(mine.get(name)) for name in names):
        where = [
            "{HOST}:{PORT}/{NAME}".format(**{name: _plain(one.get(name)) for name in names}) for one in (theirs, mine)
        ]
        yield Warning(
            f"The database of {settings.WAKEFUL_PROJECT} is {where[0]}, and that of Wakeful {where[1]}: agents look for the tables of the "
            "project where they may not be.",
            hint=f"Set DATABASE_URL to the database of the project. {GUIDE}",
            id="wakeful.W040",
        )


@register(SETTINGS)
def second_factor(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    installed = {app.partition(".apps.")[0] for app in settings.INSTALLED_APPS}
    if found := [name for name in SECOND_FACTORS if name in installed]:
        yield Warning(
            f"{found[0]} is installed, but the console lets people in by their password alone.",
            hint="Let a proxy that asks for the second factor stand before the console, or only your network reach it. "
            "See docs/access.md#a-user-model-of-your-own.",
            id="wakeful.W041",
        )


def _plain(value: object) -> str:
    """As settings write the same in several ways: the usual port, and this machine."""
    text = str(value or "")
    return {"": "local", "localhost": "local", "127.0.0.1": "local", "5432": "local"}.get(text, text)
