from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.core.management.templates import TemplateCommand

from config.place import COMMAND
from runs.management.json_output import JsonOutput

TEMPLATE = Path(__file__).resolve().parent.parent / "agent_app"
NEXT = """Made the app {name}: an agent, {name}/agents.py, and its test. Next:

  export WAKEFUL_APPS={name}
  {command} up              # PostgreSQL, Valkey and every process; prints how to log in. Then, in a second terminal:
  {command} emit {name}.asked --data '{{"name": "Ada"}}'
  {command} runs
  {command} test {name}     # while it is up
"""


class Command(JsonOutput, TemplateCommand):
    help = "Make an app with an agent and its test in the current directory, or in the given one."
    missing_args_message = "You must provide a name for the app, such as invoices."

    def handle(self, **options: Any) -> None:  # type: ignore[override]  # as startapp does
        name, target = options.pop("name"), options.pop("directory")
        if name in apps.app_configs:
            raise CommandError(f"There is an app {name} already. Choose another name.")
        options["template"] = options["template"] or str(TEMPLATE)
        super().handle("app", name, target, **options)
        self.stdout.write(NEXT.format(name=name, command=COMMAND))
