"""A thread that renews the row of the web process, and begins the alarm that no dispatcher is alive. Other processes renew
their rows in their loops."""

import threading

import structlog
from django.conf import settings
from django.db import Error, connection

from config.health.alarms import stand_in
from runs.models import Worker
from runs.processes.lease import Presence, rest

log = structlog.get_logger(__name__)


def be_present() -> None:
    """Start the thread. It outlives the main thread, so that it closes the row at an orderly end; the dispatcher closes the
    row of a killed process."""
    threading.Thread(target=_renew, args=(threading.main_thread(),), name="wakeful-presence").start()


def _renew(main: threading.Thread) -> None:
    presence = Presence(Worker.Kind.WEB)
    while main.is_alive():
        has_dispatcher = False
        try:
            has_dispatcher = stand_in(presence)
        except Error:
            # A missing renewal does no harm, and requests report the database error themselves.
            connection.close()
        except Exception:
            # A process boundary: an error while an alarm's text is made must not end the thread.
            log.exception("presence.failed")
        main.join((rest() if has_dispatcher else settings.WAKEFUL_SAFETY_LOOK).total_seconds())
    try:
        presence.close()
    except Error as error:
        log.warning("presence.not_closed", error=str(error))
    finally:
        connection.close()
