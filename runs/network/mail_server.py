"""The mail server that EMAIL_URL names. The settings read it as well, so it needs none of them."""

import ipaddress
import re
import socket
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

OUR_ID = "@wakeful>"  # the end of every Message-ID of ours; before it stands the id of the delivery
TLS = ("starttls", "ssl", "none", "offered")
CONNECTION = re.compile(r"[a-z0-9_-]{1,100}")
EXAMPLE = "smtp://user:password@host:587/?tls=starttls&from=wakeful@example.com"


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """`tls`: starttls, ssl (from the first byte), none, or offered: starttls where the server has it. `connection`: whose token signs in,
    instead of a password."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    tls: str
    sender: str
    connection: str = ""

    @classmethod
    def parse(cls, url: str) -> "MailServer":
        """ValueError names what is wrong, without quoting the address."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError("it is not a URL") from None
        if parts.scheme not in ("smtp", "smtps"):
            raise ValueError("it does not begin with smtp:// or smtps://")
        if not parts.hostname:
            raise ValueError("it has no host")
        options = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if unknown := set(options) - {"tls", "from", "connection"}:
            raise ValueError(f"it has an option {min(unknown)!r}; there are tls, from and connection")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        connection = options.get("connection", "")
        if connection and (password or not user or not CONNECTION.fullmatch(connection)):
            raise ValueError(
                "its option connection is the name of one, which signs in with a user and without a password"
            )
        # A password is not sent without TLS unless tls=none asks for that.
        usual = "ssl" if parts.scheme == "smtps" else "starttls" if password or connection else "offered"
        tls = options.get("tls", usual)
        if tls not in TLS or (parts.scheme == "smtps" and tls != "ssl"):
            raise ValueError("its tls is not starttls, ssl or none")
        if connection and tls not in ("starttls", "ssl") and not _is_here(parts.hostname):
            raise ValueError("a connection signs in with TLS only")
        sender = options.get("from") or (user if "@" in user else f"wakeful@{socket.getfqdn()}")
        if not is_address(sender):
            raise ValueError("its option from is not an e-mail address")
        port = port or {"ssl": 465, "starttls": 587}.get(tls, 25)
        return cls(
            host=parts.hostname, port=port, user=user, password=password, tls=tls, sender=sender, connection=connection
        )


def _is_here(host: str) -> bool:
    """Whether no one on the way can read what is sent there: it does not leave this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(text: str) -> bool:
    name, at, domain = text.rpartition("@")
    return bool(name and at and domain) and text.isascii() and text.isprintable() and not set(text) & set(' ,;<>"?&\\')
