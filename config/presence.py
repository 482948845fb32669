"""The web process says that it is there: a thread renews its row, as the loops of the other processes do themselves."""

import atexit
import contextlib
import threading

from django.conf import settings
from django.db import Error, connection

from runs.lease import Presence
from runs.models import Worker


def be_present() -> None:
    """Begin to renew this process's row, until it ends."""
    stopping = threading.Event()
    thread = threading.Thread(target=_renew, args=(stopping,), name="wakeful-presence", daemon=True)
    thread.start()

    def leave() -> None:
        stopping.set()
        thread.join(timeout=2)

    atexit.register(leave)


def _renew(stopping: threading.Event) -> None:
    presence = Presence(Worker.Kind.WEB)
    while not stopping.is_set():
        try:
            presence.renew()
        except Error:
            # Its absence takes nothing from anybody; requests tell about the database themselves.
            connection.close()
        stopping.wait(settings.WAKEFUL_SAFETY_LOOK.total_seconds())
    with contextlib.suppress(Error):
        presence.close()
    connection.close()
