"""E-mail, through the server that EMAIL_URL names: `smtp://user:password@host:587/?tls=starttls&from=wakeful@example.com`.

With `?connection=NAME` a connection signs in (SASL XOAUTH2, of Google and Microsoft) instead of a password.

The message counts as handed over as soon as its first byte follows the server's 354: a server that is cut off afterwards may have
taken it, and no mail server can tell a repeat.
"""

import base64
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as WIRE
from email.utils import format_datetime
from typing import ClassVar

import httpx2 as httpx
from django.conf import settings
from django.db import connection

from agents.exceptions import AgentError
from agents.guards.http import is_allowed
from agents.kernel.connecting import lease
from runs.network.mail_server import EXAMPLE, OUR_ID, MailServer, is_address
from runs.notifications.channels.channel import CONNECT, NotNow, Outcome, Refused, Sent, Unknown
from runs.notifications.message import Message

PREFIX = "mailto:"
TOKEN = 20.0  # seconds for a token; with two sessions, less than the lease of a delivery
PATIENCE = 60.0  # seconds for the whole: some servers look for viruses before they answer
ON_THE_WIRE = WIRE.clone(cte_type="7bit")
SENDER = "Wakeful"  # the name in From


class Mail:
    name: ClassVar[str] = "mail"
    can_tell_repeats: ClassVar[bool] = False
    rank: ClassVar[int] = 0

    def takes(self, address: str) -> bool:
        return address.startswith(PREFIX)

    def fault(self, address: str) -> str:
        if not is_address(address.removeprefix(PREFIX)):
            return "write one e-mail address: mailto:ops@example.com. Several people are several recipients in a group"
        if not settings.EMAIL_URL:
            return f"EMAIL_URL is not set: set it to your mail server, such as {EXAMPLE}"
        return ""

    def shown(self, address: str) -> str:
        return address

    def host(self, address: str) -> str:
        return "smtp"  # all mail goes through one server

    def send(self, address: str, message: Message) -> Outcome:
        return send_letter(lambda sender: _letter(sender, address.removeprefix(PREFIX), message))


def send_letter(letter_of: Callable[[str], EmailMessage]) -> Outcome:
    """Send the letter, which is made with the address that EMAIL_URL sends by, to the one address in its To."""
    try:
        server = MailServer.parse(settings.EMAIL_URL)
    except ValueError as error:
        return NotNow(why=f"EMAIL_URL is not usable: {error}")
    return _Dialogue(server).deliver(letter_of(server.sender))


class TokenRefused(Exception):
    """The server has refused the token; nothing was handed over."""


class _Dialogue:
    """The talk with a mail server about one letter: one session, and a second one if it refuses a token, which is renewed once."""

    def __init__(self, server: MailServer) -> None:
        self.server = server
        self.has_begun_data = False

    def deliver(self, letter: EmailMessage) -> Outcome:
        server = self.server
        try:
            token = token_for(server) if server.connection else ""
            try:
                return self._talk(letter, token)
            except TokenRefused:
                return self._talk(letter, token_for(server, refused=token))
        except TokenRefused:
            return NotNow(
                why=f"the server refuses the token of connection {server.connection}: may it send mail as this user?"
            )
        except AgentError as error:
            return NotNow(why=f"{error}")

    def _talk(self, letter: EmailMessage, token: str) -> Outcome:
        """Raises TokenRefused."""
        try:
            with self._connected(token) as smtp:
                return self._hand_over(smtp, letter)
        except smtplib.SMTPResponseException as error:
            return NotNow(why=f"the server answered {error.smtp_code} ({type(error).__name__})")
        except smtplib.SMTPNotSupportedError:
            return NotNow(why="the server does not offer what EMAIL_URL asks for: starttls, a login, or AUTH=XOAUTH2")
        except (OSError, smtplib.SMTPException, UnicodeError) as error:
            said = getattr(error, "strerror", "")
            why = f"{type(error).__name__}: {said}" if said else type(error).__name__
            return Unknown(why=f"handed over, and then: {why}") if self.has_begun_data else NotNow(why=why)

    @contextmanager
    def _connected(self, token: str) -> Iterator[smtplib.SMTP]:
        server, context = self.server, ssl.create_default_context()
        is_ssl = server.tls == "ssl"
        smtp = smtplib.SMTP_SSL(timeout=CONNECT, context=context) if is_ssl else smtplib.SMTP(timeout=CONNECT)
        # `connect` has no time limit for the whole; nor has any answer that comes byte by byte.
        watchdog = threading.Timer(PATIENCE, _cut, [smtp])
        watchdog.daemon = True
        watchdog.start()
        try:
            smtp._host = server.host  # type: ignore[attr-defined]  # the name that certificates are checked for
            code, _ = smtp.connect(server.host, server.port)
            if code != 220:
                raise smtplib.SMTPConnectError(code, "")
            if smtp.sock is not None:
                smtp.sock.settimeout(PATIENCE)
            smtp.ehlo_or_helo_if_needed()
            if server.tls == "starttls" or (server.tls == "offered" and smtp.has_extn("starttls")):
                smtp.starttls(context=context)
                smtp.ehlo()
            if token:
                _sign_in(smtp, server.user, token)
            elif server.user:
                smtp.login(server.user, server.password)
            yield smtp
        finally:
            watchdog.cancel()
            smtp.close()

    def _hand_over(self, smtp: smtplib.SMTP, letter: EmailMessage) -> Outcome:
        content = letter.as_bytes()
        code, _ = smtp.mail(self.server.sender)
        if code == 250:
            code, _ = smtp.rcpt(letter["To"].addresses[0].addr_spec)
        if code in (250, 251):
            code, _ = smtp.docmd("data")
        if code != 354:
            return self._said(code)
        self.has_begun_data = True
        smtp.send(_dotted(content))
        code, _ = smtp.getreply()
        return self._said(code)

    def _said(self, code: int) -> Outcome:
        """Its texts may quote addresses."""
        why = f"the server answered {code}"
        if code == 250 and self.has_begun_data:
            return Sent()
        if code == -1:  # smtplib's code for a malformed answer
            return Unknown(why=why) if self.has_begun_data else NotNow(why=why)
        if 500 <= code < 600:
            return Refused(why=why)
        # 421: it closes the connection. Another 4xx may be about this letter alone.
        return NotNow(why=why, is_away=code == 421)


def token_for(server: MailServer, *, refused: str = "") -> str:
    """Only for a server of the connection's provider, so that its token goes nowhere else. AgentError: there is none."""
    found: list[str | AgentError] = []

    def take() -> None:
        try:
            given = lease(server.connection, refused=refused, may_retry=False)
            address = httpx.URL(scheme="https", host=server.host, port=server.port)
            if not is_allowed(address, given.hosts):
                raise AgentError(f"connection {server.connection} sends its token to {', '.join(given.hosts)} only")
            found.append(given.token)
        except AgentError as error:
            found.append(error)
        finally:
            connection.close()

    # The threads that send have no session with the database, and this one ends with its thread.
    thread = threading.Thread(target=take, name="wakeful-mail-token", daemon=True)
    thread.start()
    thread.join(TOKEN)
    if not found:
        raise AgentError(f"no token of connection {server.connection} can be read just now")
    if isinstance(found[0], AgentError):
        raise found[0]
    return found[0]


def _sign_in(smtp: smtplib.SMTP, user: str, token: str) -> None:
    """Raises TokenRefused."""
    if "XOAUTH2" not in smtp.esmtp_features.get("auth", "").upper().split():
        raise smtplib.SMTPNotSupportedError
    first = base64.b64encode(f"user={user}\1auth=Bearer {token}\1\1".encode()).decode()
    code, _ = smtp.docmd("AUTH", f"XOAUTH2 {first}")
    if code == 334:  # a challenge with the reason, which an empty line answers
        code, _ = smtp.docmd("")
    if code == 535:
        raise TokenRefused
    if code != 235:
        raise smtplib.SMTPResponseException(code, "")


def _letter(sender: str, to: str, message: Message) -> EmailMessage:
    letter = EmailMessage(policy=ON_THE_WIRE)
    letter["From"] = Address(display_name=SENDER, addr_spec=sender)
    letter["To"] = Address(addr_spec=to)
    letter["Subject"] = message.subject
    letter["Date"] = format_datetime(message.at)
    letter["Message-ID"] = f"<{message.id}{OUR_ID}"
    letter["Auto-Submitted"] = "auto-generated"  # so that no vacation notice answers
    if message.urgency == "high":
        letter["Importance"] = "high"
    letter.set_content(message.text)
    return letter


def _dotted(content: bytes) -> bytes:
    """Of a line that begins with a dot, the server removes one; a line of one dot ends the message."""
    lines = content.split(b"\r\n")
    return b"\r\n".join(b"." + line if line.startswith(b".") else line for line in lines).rstrip(b"\r\n") + b"\r\n.\r\n"


def _cut(smtp: smtplib.SMTP) -> None:
    sock = smtp.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


CHANNEL = Mail()
