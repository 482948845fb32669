"""Services that apprise speaks, by its URLs (`tgram://token/chat`, `ntfys://host/topic`, …). Needs the extra `apprise`.

Not all of them: some write to this machine (syslog, dbus), post a body of any form anywhere (json, form), speak another protocol
to any host (amqp, irc), or ask a server that the account's owner chooses where to post (bluesky). Those at hosts of one's own are
checked before a message is sent, and follow no redirect. Unlike those of webhooks, their connections are not pinned to the checked
address.

Apprise reports only whether it worked; its log has more. A failure without a line about it may have arrived, and so may one
that took too long: those are unknown.
"""

import logging
import re
import threading
from importlib import import_module
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from agents.guards.addresses import Refused as Inside
from agents.guards.addresses import find_address
from runs.notifications.channels.channel import WHOLE, NotNow, Outcome, Refused, Sent, Unknown
from runs.notifications.channels.reach import networks_for, with_hint
from runs.notifications.message import Message

# Their messages go to the service's own hosts.
HOSTED = """
46elks atalk azure brevo bulksms bulkvs burstsms chanify clickatell clicksend cliq cm d7sms dapnet
dingtalk discord eight00com elks exotel fcm feishu firehydrant flock freemobile gchat github groupme guilded gupshup
httpsms ifttt ilert incidentio jira join kakao kakaotalk kaleyra kavenegar klr kook kudosity kumulos lark lfg line
mailersend mailgun mobilemessage mobilemsg msg91 msgbird nexmo notifiarr notifyre o365 octopush onesignal opsgenie
pagerduty pagertree pbul pingram plivo postmark pover prowl psafer psafers push pushed pushme pushplus pushward pushy
qq reddit resend revolt ringc ryver schan sendgrid sendpulse serwersms ses seven sfr signalgrid signl4 simplepush
sinch slack smsc smsmanager smsmgr smstunnel smtp2go sns sparkpost spike splunk spugpush spush squadcast stackfield
strmlabs telesign telnyx tgram threema tweet twilio twist twitter viber victorops voipms vonage webex wecom wecombot
whapi whatsapp wpush wxpusher wxteams x youlmk zalo zcliq zohocliq zoom
"""
# At a host that the address names.
AT_A_HOST = """
apprise apprises bark barks goalert goalerts gotify gotifys hassio hassios humhub humhubs mastodon mastodons matrix
matrixs misskey misskeys mmost mmosts nctalk nctalks ntfy ntfys pushdeer pushdeers rocket rockets signal signals
synology synologys toot toots workflow workflows zulip
"""
# Their values are files or addresses that apprise opens.
OPENS = re.compile(r"template|attach|cert|pgp|(?:^|key|sub)file", re.IGNORECASE)
ANSWERED = re.compile(r"\berror=(\d{3})\b")
NOT_REACHED = re.compile(
    r"Connection refused|NewConnectionError|NameResolutionError|ConnectTimeout|No route to host|Network is unreachable"
)
NOT_INSTALLED = "it needs apprise, which is not installed: pip install apprise, or make run EXTRAS=apprise"
KINDS = {"low": "info", "normal": "info", "high": "warning"}


class Apprise:
    name: ClassVar[str] = "apprise"
    can_tell_repeats: ClassVar[bool] = False
    rank: ClassVar[int] = 9

    def takes(self, address: str) -> bool:
        return "://" in address

    def fault(self, address: str) -> str:
        if barred := _barred(address):
            return barred
        try:
            service = _service(address)
        except ImportError:
            return NOT_INSTALLED
        return "" if service is not None else "apprise knows no such service, or it lacks a part"

    def shown(self, address: str) -> str:
        return f"{_schema(address)}://…"

    def host(self, address: str) -> str:
        return _schema(address)

    def send(self, address: str, message: Message) -> Outcome:
        log = _Log()
        done: list[bool] = []

        def notify() -> None:
            with log:
                # As plain text: where a service shows HTML or Markdown, apprise escapes what strangers wrote.
                done.append(bool(service.notify(message.text, message.subject, notify_type=kind, body_format="text")))

        try:
            service, kind = _service(address), import_module("apprise").NotifyType(KINDS[message.urgency])
        except ImportError:
            return NotNow(why=NOT_INSTALLED)
        if service is None:
            return Refused(why="apprise knows no such service")
        if barred := _barred(address):
            return Refused(why=barred)
        try:
            _keep_outside(service, address)
        except Inside as inside:
            return NotNow(why=with_hint(str(inside)))
        # Its services have time limits for each wait, and none for the whole.
        sending = threading.Thread(target=notify, daemon=True)
        sending.start()
        sending.join(WHOLE)
        if sending.is_alive():
            return Unknown(why=f"no end within {WHOLE:g} s")
        return Sent() if done == [True] else _failed(log.text)


class _Log(logging.Handler):
    """What apprise logs in this thread."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""
        self.thread = 0

    def __enter__(self) -> None:
        self.thread = threading.get_ident()
        logger = logging.getLogger("apprise")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False  # it logs addresses and payloads
        logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("apprise").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self.thread and not ANSWERED.search(self.text):
            self.text = f"{self.text}\n{record.getMessage()}"[-10_000:]


def _failed(log: str) -> Outcome:
    if answered := ANSWERED.search(log):
        status = int(answered[1])
        why = f"it answered {status}"
        if status in (502, 504):
            return Unknown(why=why)
        return NotNow(why=why) if status in (408, 425, 429) or status >= 500 else Refused(why=why)
    if NOT_REACHED.search(log):
        return NotNow(why="it could not be reached")
    return Unknown(why="apprise did not say why it failed")


def _service(address: str) -> Any:
    return import_module("apprise").Apprise.instantiate(address, suppress_exceptions=True)


def _barred(address: str) -> str:
    """Why this address may not be used, whatever its host; empty if it may."""
    schema = _schema(address).lower()
    if schema not in {*HOSTED.split(), *AT_A_HOST.split()}:
        return "apprise knows no such service, or it is none that notifications go to"
    named = [name for name, _ in parse_qsl(address.partition("?")[2], keep_blank_values=True)]
    if opened := next((name for name in named if OPENS.search(name)), ""):
        return f"it has the option {opened[:20]!r}, which opens a file or an address"
    return ""


def _keep_outside(service: Any, address: str) -> None:
    """Raises Inside."""
    service.redirects = False
    networks, schema = networks_for(address), _schema(address).lower()
    if networks is None or schema not in AT_A_HOST.split():
        return
    if getattr(service, "mode", "") == "cloud":  # of ntfy: its host is a topic
        return
    service.discovery = False  # of matrix: the host would name another one
    host = f"{service.organization}.{service.hostname}" if schema == "zulip" else str(service.host or "")
    find_address(host.strip("[]"), service.port or 443, networks)


def _schema(address: str) -> str:
    return address.partition("://")[0]


CHANNEL = Apprise()
