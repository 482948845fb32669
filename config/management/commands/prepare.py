"""Prepares the database for `up` before the processes start; prints how to log in."""

import contextlib
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command

from config.stack.access import ensure_admin, ensure_operator_token
from config.stack.demo import load_demo
from runs.exceptions import IllegalState
from runs.management.command import BaseCommand
from runs.management.operator import operator
from runs.queues.pause import EVERY, pause
from runs.queues.state import find_queue

# Each request on its own line, to be copied whole.
TRY = """Try:
{curl}
Then an agent that waits: it asks whether to refund that order, at {site}/admin/runs/approval/
{refund}
And once you have approved it, it waits for the goods:
{returned}
Then an agent with a model: it drafts reminders of overdue invoices, and asks you before it sends one ({model}):
{chase}"""
PAUSED = """Paused: events are accepted and become runs; none of them starts until `manage.py resume`.
After a restore, first see {restored}"""


class Command(BaseCommand):
    help = "Migrate, sync the agents, ensure that admin can log in, load the demo with --demo; safe to repeat."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--demo", action="store_true", help="load the demo and print signed requests for it")
        parser.add_argument("--paused", action="store_true", help="pause all queues before any process starts")

    def handle(self, *, demo: bool, paused: bool, **options: Any) -> None:
        # Standard output is only for the login; other output goes to standard error.
        call_command("migrate", interactive=False, verbosity=0, stdout=self.stderr)
        if paused:
            pause_everything()
        call_command("sync_agents", stdout=self.stderr)
        ensure_operator_token()
        site = f"http://127.0.0.1:{settings.WAKEFUL_PORT}"
        login = ensure_admin()
        self.stdout.write(f"Admin  {site}/admin/  user: {login.name}  password: {login.password}")
        self.stdout.write(f"API    {site}/api/schema/  token: WAKEFUL_API_TOKEN in {settings.WAKEFUL_HOME / 'env'}")
        if demo:
            self.stdout.write(TRY.format(**vars(load_demo()), site=site, model=model_in_words()))
        if find_queue(EVERY).is_paused:
            self.stdout.write(PAUSED.format(restored=f"{site}/admin/runs/queue/restored/"))


def model_in_words() -> str:
    if settings.WAKEFUL_MODEL == "builtin":
        return "the built-in model, deterministic; for another: WAKEFUL_MODEL, see docs/llm.md"
    return f"the model {settings.WAKEFUL_MODEL}"


def pause_everything() -> None:
    """Pause all queues; an existing pause keeps its reason."""
    with contextlib.suppress(IllegalState):
        pause(EVERY, reason="started with --paused", by=operator())
