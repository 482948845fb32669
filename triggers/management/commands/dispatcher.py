import signal
from typing import Any

from runs.management.command import BaseCommand
from triggers.dispatch.loop import Dispatcher


class Command(BaseCommand):
    help = "Turn events into runs, wake due runs, ring the workers' doorbell, recover lost runs. Any number may run."
    is_process = True

    def handle(self, *args: Any, **options: Any) -> None:
        # An exception interrupts the wait for a NOTIFY; setting a flag would not.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        Dispatcher().run()
