import signal
from typing import Any

from django.core.management.base import BaseCommand

from triggers.dispatch.loop import Dispatcher


class Command(BaseCommand):
    help = "Turn events into runs, wake what is due, ring for workers, rescue lost runs. Any number may run."

    def handle(self, *args: Any, **options: Any) -> None:
        # Both interrupt the wait for a NOTIFY, which an ordinary flag would not.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        Dispatcher().run()
