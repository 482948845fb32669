"""The web process says that it is there: a thread renews its row, as the loops of the other processes do themselves. With the
same slow look it raises the alarm that no dispatcher is alive."""

import threading

import structlog
from django.conf import settings
from django.db import Error, connection

from config.health.alarms import stand_in
from runs.models import Worker
from runs.processes.lease import Presence

log = structlog.get_logger(__name__)


def be_present() -> None:
    """Begin to renew this process's row. The thread outlives the main one, so that a process that ends in order closes it; that
    of a killed one is closed by the dispatcher."""
    threading.Thread(target=_renew, args=(threading.main_thread(),), name="wakeful-presence").start()


def _renew(main: threading.Thread) -> None:
    presence = Presence(Worker.Kind.WEB)
    while main.is_alive():
        try:
            presence.renew()
            stand_in()
        except Error:
            # Its absence takes nothing from anybody; requests tell about the database themselves.
            connection.close()
        except Exception:
            # One process boundary: an alarm that cannot be worded must not end the thread.
            log.exception("presence.failed")
        main.join(settings.WAKEFUL_SAFETY_LOOK.total_seconds())
    try:
        presence.close()
    except Error as error:
        log.warning("presence.not_closed", error=str(error))
    finally:
        connection.close()
