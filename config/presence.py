"""The web process says that it is there: a thread renews its row, as the loops of the other processes do themselves."""

import threading
import time

from django.conf import settings
from django.db import Error, connection

from runs.lease import Presence
from runs.models import Worker


def be_present() -> None:
    """Begin to renew this process's row. Nobody closes it: once the process is gone, the dispatcher does."""
    threading.Thread(target=_renew, name="wakeful-presence", daemon=True).start()


def _renew() -> None:
    presence = Presence(Worker.Kind.WEB)
    while True:
        try:
            presence.renew()
        except Error:
            # Its absence takes nothing from anybody; requests tell about the database themselves.
            connection.close()
        time.sleep(settings.WAKEFUL_SAFETY_LOOK.total_seconds())
