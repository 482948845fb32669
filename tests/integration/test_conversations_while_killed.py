"""A thousand messages of three channels come to one agent while every process is killed again and again, and while what takes the
answers is slow, busy, broken or cut off: each is answered once, in its thread, in order. WAKEFUL_FULL=1 plays the thousand.

An answer whose request was cut off is *unknown*: it is in the ledger, arrived once at most, and is not sent again.
"""

import hashlib
import hmac
import http.client
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from itertools import count, cycle
from threading import Event, Thread
from typing import Any

import psutil
import pytest
from django.conf import settings

from tests.integration.courier import HASTY
from tests.support.chat_servers import BOT
from tests.support.imap_server import ImapServer
from tests.support.post_office import HookServer, MailServer, Manner, text_of
from tests.support.replying import connected_to
from tests.support.stack import ROOT, Process, Stack, StackMaker, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

FULL = bool(os.environ.get("WAKEFUL_FULL"))
THREADS, EACH = (50, 20) if FULL else (9, 6)  # threads, and messages of each
CHANNELS = ("slack", "telegram", "mail")
SECRET = "secret-of-the-senders-1234"
STEP = (
    12 if FULL else 2
)  # answers between two kills: no clock paces them, so that a slow machine is not killed more often
KILLS = 3 if FULL else 2  # for each round of messages, at least
AHEAD = 4  # rounds of messages that are sent before the first of them is answered
PATIENCE = 900.0 if FULL else 300.0
# In turn. A child is killed alone, and its parent lives.
VICTIMS = ("worker", "dispatcher", "web", "child", "sources", "worker-2", "dispatcher", "child")
# What a server does to answers, for a moment each, and well for some moments after it: slow; 429 or 451; 503 or 421; the body is read and
# the connection cut; 504.
MANNERS: dict[str, Sequence[Manner]] = {
    "chat": ("slow", "greylist", "later", "cut", "gateway"),
    "mail": ("slow", "greylist", "later", "cut"),
}
MOMENT, WELL = 0.5, 4  # seconds, and moments
ENDED = "SELECT count(*) AS n FROM runs_delivery WHERE place IS NOT NULL AND status IN ('sent', 'unknown', 'failed')"
# As if the time of a claim was over: what the killed dispatcher was sending may have arrived.
RUNNING = """SELECT run.pid FROM runs_run run JOIN runs_worker worker ON worker.id = run.worker_id
WHERE run.status = 'running' AND worker.pid = %s"""
LEASE_ENDS = "UPDATE runs_delivery SET due_at = now() WHERE status = 'sending' RETURNING id"
Answers = dict[str, list[str]]  # by thread, in the order in which they arrived


@dataclass(frozen=True)
class Message:
    channel: str
    thread: str
    number: int

    @property
    def text(self) -> str:
        return f"message {self.number} of {self.thread}"

    @property
    def expected(self) -> str:
        return f"{self.thread}: {self.number} after [{' '.join(str(one) for one in range(self.number))}]"

    @property
    def place(self) -> int:
        return int(self.thread.partition("-")[2])


class Chat(HookServer):
    """Takes answers as Slack and Telegram do."""

    def __init__(self) -> None:
        super().__init__()
        self.says = b'{"ok":true}'
        self.taken: list[Mapping[str, Any]] = []

    def took(self, id: str, content: str) -> None:
        self.taken.append(json.loads(content))


@dataclass
class World:
    """The senders of messages, and what takes the answers."""

    slack: Chat
    telegram: Chat
    smtp: MailServer
    imap: ImapServer
    repeats: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    ended: Event = field(default_factory=Event)

    def misbehave(self) -> None:
        """Until the play has ended."""
        chat, mail = cycle(MANNERS["chat"]), cycle(MANNERS["mail"])
        for number in count():
            is_well = number % (WELL + 1)
            self.slack.manner = "take" if is_well else next(chat)
            self.telegram.manner = "take" if is_well else next(chat)
            self.smtp.manner = "take" if is_well else next(mail)
            if self.ended.wait(MOMENT):
                break
        self.slack.manner = self.telegram.manner = self.smtp.manner = "take"

    def send(self, stack: Stack, message: Message) -> None:
        """As the provider does: again until it is answered, and now and then once more, as if the answer had been lost."""
        if message.channel == "mail":
            self.imap.add(letter(message))
            return
        path, body, headers = slack_of(message) if message.channel == "slack" else telegram_of(message)
        for tries in count(1):
            status = posted(stack, path, body, headers())
            if status in (200, 202) and not (tries == 1 and message.number % 5 == 4):
                return
            self.repeats += 1
            self.refused[str(status)] += status not in (200, 202)
            time.sleep(0.2)

    def arrived(self) -> Answers:
        found: Answers = defaultdict(list)
        for one in self.slack.taken:
            found[f"slack-{int(one['thread_ts'].split('.')[0]) - 1_700_000_000}"].append(one["text"])
        for one in self.telegram.taken:
            found[f"telegram-{int(one['chat_id']) - 1_000_000}"].append(one["text"])
        for letter in self.smtp.letters:
            root = letter["References"].split()[0]
            found[root.strip("<>").partition(".")[0]].append(text_of(letter))
        return found


@pytest.fixture
def world() -> Iterator[World]:
    servers = Chat(), Chat(), MailServer(), ImapServer()
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.close)
            stack.callback(server.gate.set)
        yield World(*servers)


def slack_of(message: Message) -> tuple[str, bytes, Any]:
    root = 1_700_000_000 + message.place
    inner = {
        "type": "app_mention",
        "user": "U1",
        "channel": "C1",
        "ts": f"{root}.{message.number + 1:06}",
        "thread_ts": f"{root}.000001",
        "text": message.text,
    }
    id = f"Ev{message.place}X{message.number}"
    body = json.dumps({"type": "event_callback", "team_id": "T1", "event_id": id, "event": inner}).encode()

    def headers() -> dict[str, str]:
        at = str(int(time.time()))
        signed = hmac.new(SECRET.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={signed}"}

    return "/hooks/slack/", body, headers


def telegram_of(message: Message) -> tuple[str, bytes, Any]:
    person = {"id": 7, "is_bot": False, "first_name": "Ada"}
    chat = {"id": 1_000_000 + message.place, "type": "private"}
    inner = {"message_id": message.number + 1, "date": 1_700_000_000, "from": person, "chat": chat}
    update = {"update_id": message.place * 1_000 + message.number, "message": {**inner, "text": message.text}}
    return "/hooks/telegram/", json.dumps(update).encode(), lambda: {"X-Telegram-Bot-Api-Secret-Token": SECRET}


def letter(message: Message) -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"] = "Ada <ada@example.org>", "agents@example.net"
    mail["Subject"] = f"Question {message.place}"
    mail["Message-ID"] = f"<{message.thread}.{message.number}@example.org>"
    if message.number:
        mail["References"] = f"<{message.thread}.0@example.org>"
    mail.set_content(message.text)
    return mail.as_bytes()


def posted(stack: Stack, path: str, body: bytes, headers: dict[str, str]) -> int:
    """The status, or 0 if there is no answer."""
    with suppress(OSError, http.client.HTTPException):
        answer = stack.request(
            "POST", path, body=body, headers={**headers, "Content-Type": "application/json"}, timeout=10
        )
        return answer.status
    return 0


def make_sources(stack: Stack, world: World) -> None:
    from runs.models import Recipient
    from triggers.sources.edit import create_source
    from triggers.sources.secrets import add_secret

    host = f"127.0.0.1:{world.slack.port}"
    slack = {"reply": "yes", "reply_connection": "bot", "reply_api": f"http://{host}/api/"}
    mail = {"host": "127.0.0.1", "port": world.imap.port, "user": world.imap.user, "tls": "none", "every": "10s"}
    mail |= {"begin_with": "all", "reply": "yes", "answers_to": "example.org", "mailbox_address": "agents@example.net"}
    with stack.orm():
        connected_to(host)
        Recipient.objects.create(name="telegram", address=f"tgram://{BOT}/1", channel="apprise", host="telegram")
        add_secret(create_source("slack", kind="slack", settings=slack, by="test"), SECRET, by="test")
        telegram = {"reply": "yes", "reply_recipient": "telegram"}
        add_secret(create_source("telegram", kind="telegram", settings=telegram, by="test"), SECRET, by="test")
        add_secret(create_source("mail", kind="imap", settings=mail, by="test"), world.imap.password, by="test")


class Killer:
    """Kills the processes in turn: each once it is ready again, and once some answers have gone out since the last kill; a worker or its
    child over a body that runs. Where all that was sent is answered, it waits for neither."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.sent = 0  # messages
        self.kills: Counter[str] = Counter()
        self.over_bodies = 0  # kills
        self.ended = Event()
        self.processes: dict[str, Process] = {}

    def start(self) -> None:
        for kind in ("web", "dispatcher", "worker", "worker", "sources"):
            process = self.stack.start(kind, wait=False)
            self.processes[process.name] = process
        for process in self.processes.values():
            process.wait_ready()

    def kill_in_turn(self) -> None:
        enough = STEP
        for victim in cycle(VICTIMS):
            process = self.processes["worker" if victim == "child" else victim]
            while not (self._are_up() and process.is_ready() and ended(self.stack) >= min(enough, self.sent)):
                if self.ended.wait(0.1):
                    return
            if process.kind == "worker":
                self._kill_over_a_body(process, is_child=victim == "child")
            else:
                process.kill()
            self.kills[victim.partition("-")[0]] += 1
            if victim == "dispatcher":
                self.stack.query(LEASE_ENDS)
            if victim != "child":
                process.restart(wait=False)
            enough = ended(self.stack) + STEP

    def _kill_over_a_body(self, process: Process, *, is_child: bool) -> None:
        bodies: list[dict[str, Any]] = []
        while ended(self.stack) < self.sent and process.is_alive():
            if (bodies := self.stack.query(RUNNING, process.pid)) or self.ended.wait(0.02):
                break
        self.over_bodies += bool(bodies)
        if not is_child:
            process.kill()
            return
        at_work = {body["pid"] for body in bodies}
        for child in sorted(process.children(), key=lambda child: child.pid in at_work)[-1:]:
            with suppress(psutil.NoSuchProcess):
                child.kill()

    def _are_up(self) -> bool:
        """Start again what has ended by itself: Celery's parent does where a child is killed in its first second."""
        fallen = [process for process in self.processes.values() if not process.is_alive()]
        for process in fallen:
            process.kill()
            process.restart(wait=False)
        return not fallen

    def end(self) -> None:
        for process in self.processes.values():
            if not process.is_alive():
                process.kill()
                process.restart(wait=False)
            process.wait_ready()


def rounds() -> list[list[Message]]:
    """The n-th messages of all threads."""
    threads = [(CHANNELS[n % 3], f"{CHANNELS[n % 3]}-{n}") for n in range(1, THREADS + 1)]
    return [[Message(channel, thread, number) for channel, thread in threads] for number in range(EACH)]


def ended(stack: Stack) -> int:
    return int(stack.query(ENDED)[0]["n"])


def test_each_message_is_answered_once_in_its_thread_in_order(make_stack: StackMaker, world: World) -> None:
    env = {
        **HASTY,
        "WAKEFUL_APPS": "switchboard",
        "PYTHONPATH": str(ROOT / "tests" / "userapps"),
        "EMAIL_URL": world.smtp.url,
        "WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8",
        "WAKEFUL_NOTIFY_NETWORKS": "127.0.0.0/8",
        "WAKEFUL_ENCRYPTION_KEYS": ",".join(settings.WAKEFUL_ENCRYPTION_KEYS),
    }
    stack = make_stack(env=env, agents=True)
    (stack.folder / "telegram").write_text(f"http://127.0.0.1:{world.telegram.port}")
    stack.query("UPDATE triggers_trigger SET policy = policy || '{\"backoff\": 0.2}'")
    make_sources(stack, world)
    killer = Killer(stack)
    killer.start()
    began = time.monotonic()
    messages = [message for each in rounds() for message in each]
    others = [Thread(target=killer.kill_in_turn), Thread(target=world.misbehave)]
    for other in others:
        other.start()
    try:
        with ThreadPoolExecutor(8) as senders:
            for number, each in enumerate(rounds()):
                killer.sent += len(each)
                list(senders.map(lambda message: world.send(stack, message), each))
                eventually(lambda: killer.kills.total() >= KILLS * number, PATIENCE, every=0.2)  # noqa: B023
                eventually(lambda: ended(stack) >= (number + 1 - AHEAD) * THREADS, PATIENCE, every=0.2)  # noqa: B023
        eventually(lambda: ended(stack) >= len(messages), PATIENCE, every=0.2)
    finally:
        killer.ended.set()
        world.ended.set()
        for other in others:
            other.join()
    took = time.monotonic() - began
    killer.end()
    eventually(lambda: not stack.query("SELECT 1 FROM runs_run WHERE finished_at IS NULL"))

    assert_each_is_an_event_and_a_run(stack, messages)
    unknown = assert_each_is_answered_once(stack, world, messages)
    assert_conversations_are_whole(stack)
    assert all(killer.kills[victim.partition("-")[0]] >= (5 if FULL else 1) for victim in VICTIMS)
    assert killer.over_bodies
    stack.manage("verify")
    print_figures(stack, world, killer, took, unknown)


def assert_each_is_an_event_and_a_run(stack: Stack, messages: Sequence[Message]) -> None:
    events = stack.query(
        "SELECT source.slug, count(*) AS n FROM triggers_event event JOIN triggers_source source ON source.id = source_id "
        "WHERE source.slug = ANY(%s) GROUP BY 1",
        list(CHANNELS),
    )
    assert {row["slug"]: row["n"] for row in events} == Counter(message.channel for message in messages)
    runs = stack.query("SELECT status, event_ids, result FROM runs_run WHERE agent = 'switchboard'")
    assert Counter(run["status"] for run in runs) == {"succeeded": len(messages)}
    assert Counter(run["result"] for run in runs) == Counter(message.expected for message in messages)
    assert all(len(run["event_ids"]) == 1 for run in runs)


def assert_each_is_answered_once(stack: Stack, world: World, messages: Sequence[Message]) -> int:
    """How many are unknown."""
    rows = stack.query(
        "SELECT note.text, delivery.status FROM runs_delivery delivery JOIN runs_notification note ON note.id = notification_id "
        "WHERE place IS NOT NULL ORDER BY note.id"
    )
    ledger: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in rows:
        ledger[row["text"].partition(":")[0]].append((row["text"], row["status"]))
    wanted: Answers = defaultdict(list)
    for message in messages:
        wanted[message.thread].append(message.expected)
    assert {thread: [text for text, _ in each] for thread, each in ledger.items()} == wanted
    arrived = world.arrived()
    for thread, each in ledger.items():
        assert {status for _, status in each} <= {"sent", "unknown"}, thread
        came = arrived[thread]
        assert sorted(came, key=wanted[thread].index) == came and len(set(came)) == len(came), thread
        assert {text for text, status in each if status == "sent"} <= set(came), thread
    unknown = sum(1 for row in rows if row["status"] == "unknown")
    assert unknown < len(messages) / 2  # the servers are well for most of the time
    return unknown


def assert_conversations_are_whole(stack: Stack) -> None:
    turns = stack.query(
        "SELECT session.name, array_agg(turn.number ORDER BY turn.number) AS numbers, count(DISTINCT turn.run_id) AS runs "
        "FROM agents_session session JOIN agents_sessionturn turn ON turn.session_id = session.id GROUP BY 1"
    )
    assert len(turns) == THREADS
    assert all(turn["numbers"] == list(range(1, EACH + 1)) and turn["runs"] == EACH for turn in turns)


def print_figures(stack: Stack, world: World, killer: Killer, took: float, unknown: int) -> None:
    [row] = stack.query("SELECT count(*) AS runs, sum(epoch) AS epochs FROM runs_run WHERE agent = 'switchboard'")
    outcomes = stack.query("SELECT outcome, count(*) AS n FROM runs_attempt GROUP BY 1 ORDER BY 1")
    [tries] = stack.query("SELECT sum(attempts) AS n FROM runs_delivery WHERE place IS NOT NULL")
    of_unknown = stack.query("SELECT reason, count(*) AS n FROM runs_delivery WHERE status = 'unknown' GROUP BY 1")
    print(
        f"\n{row['runs']} messages answered in {took:.0f} s; kills {killer.kills.total()} {dict(killer.kills)}, "
        f"{killer.over_bodies} over a body; "
        f"requests sent again {world.repeats} {dict(world.refused)}; epochs {row['epochs']}; "
        f"attempts { ({one['outcome']: one['n'] for one in outcomes}) }; tries of answers {tries['n']}; unknown {unknown} "
        f"{ ({one['reason']: one['n'] for one in of_unknown}) }"
    )
