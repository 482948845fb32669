import signal
from typing import Any

from runs.management.command import BaseCommand
from triggers.sources.process.loop import Sources


class Command(BaseCommand):
    help = (
        "Read the sources that Wakeful has to read: brokers and feeds. Any number may run; each source has one reader."
    )
    is_process = True

    def handle(self, *args: Any, **options: Any) -> None:
        # An exception interrupts the wait for a batch; setting a flag would not.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        Sources().run()
