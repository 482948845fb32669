"""An operator at the console in the midst of it all: cancels runs, requeues what has failed or was cancelled, pauses a
trigger and resumes it."""

import threading
import time
from contextlib import suppress
from random import Random

import psycopg

from tests.chaos.lab import Lab
from tests.chaos.load import UNHEARD, Senders
from tests.chaos.needs import request

# Not of agents whose order, or whose last run, is to be judged.
CANCEL = """
SELECT id FROM runs_run WHERE status IN ('queued', 'running', 'waiting')
  AND agent IN ('plain-b', 'pooled', 'flaky', 'joining', 'single', 'rated', 'stepping', 'patient', 'asking', 'family', 'sprout')
ORDER BY md5(id::text || %s) LIMIT 1
"""
REQUEUE = """
SELECT id FROM runs_run WHERE status IN ('failed', 'cancelled') AND created_at > %s
  AND agent IN ('plain-b', 'pooled', 'flaky', 'joining', 'single', 'doomed', 'stepping', 'patient', 'asking', 'family')
ORDER BY md5(id::text || %s) LIMIT 1
"""
ACTIONS = 8


def meddle(lab: Lab, senders: Senders, random: Random) -> None:
    """Begin to; it ends with the senders."""
    thread = threading.Thread(target=_meddle, args=(lab, senders, random), daemon=True)
    senders.threads.append(thread)
    thread.start()


def _meddle(lab: Lab, senders: Senders, random: Random) -> None:
    for number in range(ACTIONS):
        time.sleep(random.uniform(0.1, 0.5))
        with suppress(psycopg.Error, *UNHEARD):
            match random.choice(["cancel", "cancel", "requeue", "pause"]):
                case "cancel":
                    for run in lab.stack.query(CANCEL, str(number)):
                        request(lab, senders, f"/api/v1/runs/{run['id']}/cancel/", {})
                case "requeue":
                    for run in lab.stack.query(REQUEUE, senders.since, str(number)):
                        request(lab, senders, f"/api/v1/runs/{run['id']}/requeue/", {})
                case "pause":
                    request(lab, senders, "/api/v1/triggers/plain-b/pause/", {"reason": "chaos"})
    until_resumed(lab, senders)


def until_resumed(lab: Lab, senders: Senders) -> None:
    """What was held must run after all."""
    give_up_at = time.monotonic() + 90
    while time.monotonic() < give_up_at:
        with suppress(*UNHEARD):
            if request(lab, senders, "/api/v1/triggers/plain-b/resume/", {"held": "run"}) in (200, 409):
                return
        time.sleep(0.3)
