"""Senders that do not give up: signed deliveries at a steady rate, each sent again until it is accepted.

`PORT RATE`, the source's secret in BENCH_SECRET; a line on standard input ends it, and what was accepted goes to
standard output.
"""

import hmac
import http.client
import json
import os
import sys
import threading
import time
from itertools import count

from bench.ground.names import READY

SOURCE = "recovery"
SENDERS = 8
AGAIN = 0.2  # seconds between two tries of one delivery
PATIENCE = 10.0  # seconds for one answer


class Senders:
    """They share one clock: a delivery that had to wait does not make the next ones late."""

    def __init__(self, port: int, rate: float, secret: bytes) -> None:
        self.port = port
        self.rate = rate
        self.secret = secret
        self.tag = time.time_ns()
        self.numbers = count()
        self.began = time.monotonic()
        self.stopped = threading.Event()
        self.accepted: dict[str, int] = {}  # event → how often it was sent

    def send_all(self) -> None:
        threads = [threading.Thread(target=self._send_one_after_another) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        sys.stdin.readline()
        self.stopped.set()
        for thread in threads:
            thread.join()

    def _send_one_after_another(self) -> None:
        for number in self.numbers:
            if self.stopped.wait(max(0.0, self.began + number / self.rate - time.monotonic())):
                return
            self._send_until_accepted(number)

    def _send_until_accepted(self, number: int) -> None:
        body = json.dumps({"id": f"{self.tag}-{number}", "type": "effect.wanted"}).encode()
        for tries in count(1):
            if event := self._send(body):
                self.accepted[event] = tries
                return
            time.sleep(AGAIN)

    def _send(self, body: bytes) -> str | None:
        """The event's id; None where there was no answer, or a refusal."""
        headers = {"Content-Type": "application/json", "X-Signature": hmac.digest(self.secret, body, "sha256").hex()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("POST", f"/hooks/{SOURCE}/", body, headers)
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return str(json.loads(said)["event"]) if answer.status in (200, 202) else None


if __name__ == "__main__":
    senders = Senders(int(sys.argv[1]), float(sys.argv[2]), os.environ["BENCH_SECRET"].encode())
    print(READY, flush=True)
    senders.send_all()
    print(json.dumps(senders.accepted))
