import asyncio
import signal
from typing import Any

from runs.calls.caller import Caller
from runs.durable.progress import record_late_answer
from runs.management.command import BaseCommand


class Command(BaseCommand):
    help = "Make the requests to models that runs wait for, many at once, so that a waiting run occupies no worker. Any number may run."
    is_process = True

    def handle(self, *args: Any, **options: Any) -> None:
        asyncio.run(call())


async def call() -> None:
    caller = Caller(record_late_answer)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, caller.stop)
    await caller.run()
