"""The mail server that EMAIL_URL names. The settings read it as well, so it needs none of them."""

import socket
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

OUR_ID = "@wakeful>"  # the end of every Message-ID of ours; before it stands the id of the delivery
TLS = ("starttls", "ssl", "none", "offered")
EXAMPLE = "smtp://user:password@host:587/?tls=starttls&from=wakeful@example.com"


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """`tls`: starttls, ssl (from the first byte), none, or offered: starttls where the server has it."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    tls: str
    sender: str

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
        if unknown := set(options) - {"tls", "from"}:
            raise ValueError(f"it has an option {min(unknown)!r}; there are tls and from")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        # A password is not sent without TLS unless tls=none asks for that.
        usual = "ssl" if parts.scheme == "smtps" else "starttls" if password else "offered"
        tls = options.get("tls", usual)
        if tls not in TLS or (parts.scheme == "smtps" and tls != "ssl"):
            raise ValueError("its tls is not starttls, ssl or none")
        sender = options.get("from") or (user if "@" in user else f"wakeful@{socket.getfqdn()}")
        if not is_address(sender):
            raise ValueError("its option from is not an e-mail address")
        port = port or {"ssl": 465, "starttls": 587}.get(tls, 25)
        return cls(host=parts.hostname, port=port, user=user, password=password, tls=tls, sender=sender)


def is_address(text: str) -> bool:
    name, at, domain = text.rpartition("@")
    return bool(name and at and domain) and text.isascii() and text.isprintable() and not set(text) & set(' ,;<>"?&\\')
