"""Writes the settings module by which Wakeful stands beside a project: shop/wakeful.py beside shop/settings.py."""

from argparse import ArgumentParser
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from config import settings as ours
from config.beside import app_of, apps_of, is_postgresql, settings_of
from config.place import COMMAND
from runs.management.json_output import JsonOutput

TEXT = '''"""Wakeful's settings in this project: DJANGO_SETTINGS_MODULE={module} for each of Wakeful's processes and commands.

Written by `{command} init {project}`; it is yours from now on."""

from {beside} import settings_of
from {ours} import *  # noqa: F403
from {package} import {name} as project

# The apps, users, caches, files, mail, language and time zone of the project, its other databases, and what only it knows.
globals().update(settings_of(project, globals(), without={without}))

# What Wakeful's processes shall have otherwise than the project stands below, such as: CACHES = {{…}}
'''


class Command(JsonOutput):
    help = "Write the settings module by which Wakeful stands beside a project; asks nothing, and overwrites nothing."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "project", nargs="?", default="", help="the settings module of the project, such as shop.settings"
        )
        parser.add_argument("--name", default="wakeful", help="name of the module; by default wakeful")
        parser.add_argument(
            "--without",
            nargs="*",
            default=[],
            dest="left_out",
            help="apps of the project to leave out of Wakeful's processes",
        )

    def handle(self, *, project: str, name: str, left_out: list[str], **options: Any) -> None:
        if not project:
            raise CommandError(f"Name the settings module of your project: {COMMAND} init shop.settings")
        module = self._import(project)
        if Path(module.__file__ or "").resolve() == Path(ours.__file__).resolve():
            raise CommandError(
                f"{project} are Wakeful's own settings. Name those of your project, such as shop.settings."
            )
        if not hasattr(module, "INSTALLED_APPS"):
            raise CommandError(
                f"{project} has no INSTALLED_APPS. Name the module that has, such as {project}.production."
            )
        engine = getattr(module, "DATABASES", {}).get("default", {}).get("ENGINE", "")
        if engine and not is_postgresql(engine):
            raise CommandError(
                f"The default database of {project} is {engine}. Wakeful's tables and yours share a database and its transactions, "
                "which must be PostgreSQL. Without that, run it by itself, and send it events: see docs/beside-your-project.md."
            )
        without = [*_without(module), *left_out]
        try:
            settings_of(module, vars(ours), without=without)
        except ImproperlyConfigured as error:
            raise CommandError(f"{error} `{COMMAND} init {project} --without …` leaves apps out.") from error
        package = project.rpartition(".")[0]
        if not package:
            raise CommandError(f"{project} is in no package. Put your settings into one, such as shop/settings.py.")
        place = Path(module.__file__ or "")
        target = (place.parent if hasattr(module, "__path__") else place).with_name(f"{name}.py")
        text = TEXT.format(
            command=COMMAND,
            beside=settings_of.__module__,
            ours=ours.__name__,
            module=f"{package}.{name}",
            project=project,
            package=package,
            name=project.rpartition(".")[2],
            without=without,
        )
        try:
            with target.open("x") as file:
                file.write(text)
        except FileExistsError:
            raise CommandError(f"{target} exists: nothing was written. Remove it, or choose another --name.") from None
        except OSError as error:
            raise CommandError(f"{target} cannot be written: {error.strerror}.") from None
        self._report(target, f"{package}.{name}", module, without)

    def _import(self, project: str) -> ModuleType:
        try:
            return import_module(project)
        except Exception as error:  # whatever their settings raise
            raise CommandError(
                f"{project} cannot be imported: {type(error).__name__}: {error}. The folder that has it must be on PYTHONPATH, and its "
                "environment must be set."
            ) from error

    def _report(self, target: Path, name: str, module: ModuleType, without: list[str]) -> None:
        taken = settings_of(module, vars(ours), without=without)
        apps = taken["INSTALLED_APPS"][len(ours.INSTALLED_APPS) :]
        named = sorted(one for one in taken if not one.startswith("WAKEFUL_"))
        self.stdout.write(f"Written: {target}")
        self.stdout.write(f"Apps: {', '.join(apps) or 'none'}")
        self.stdout.write(f"Users: {taken.get('AUTH_USER_MODEL', 'auth.User')}")
        self.stdout.write(f"Taken from {module.__name__}: {', '.join(named)}")
        if not getattr(module, "USE_TZ", settings.USE_TZ):
            self.stdout.write(
                "USE_TZ is off there and on here: datetimes of your models are aware in Wakeful's processes."
            )
        self.stdout.write(
            f"Set for each of Wakeful's processes: DJANGO_SETTINGS_MODULE={name}, DATABASE_URL (the project's), PYTHONPATH"
        )
        self.stdout.write(f"Then: {COMMAND} migrate && {COMMAND} up, and in a second terminal: {COMMAND} doctor")


def _without(module: ModuleType) -> list[str]:
    """Apps of theirs whose AppConfig stands for an app that is in Wakeful's list, such as an admin with a site of its own."""
    theirs = getattr(module, "INSTALLED_APPS", ())
    known = {AppConfig.create(entry).name for entry in ours.INSTALLED_APPS}
    return [entry for entry in apps_of(theirs, ours.INSTALLED_APPS) if app_of(entry) in known]
