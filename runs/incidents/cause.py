"""The cause of a failure: its error without numbers, ids, hex, addresses and quoted values."""

import hashlib
import re

LENGTH = 300  # characters of a cause
READ = 2_000  # characters of an error
OTHER = "other causes"  # of a thing that fails for more causes than are kept apart
NONE = "no error was recorded"

QUOTED = re.compile(r"""(?<!\w)'[^'\n]*'(?!\w)|"[^"\n]*"|`[^`\n]*`|«[^»\n]*»|“[^”\n]*”|‘[^’\n]*’""")
ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w.-]{1,255}")
TOKEN = re.compile(r"[\w-]{8,}")
MIXED = re.compile(r"\d[A-Za-z_-]+\d")
HEX = re.compile(r"\b(?:0x)?(?=[a-f]*\d)[0-9a-f]{6,}\b", re.IGNORECASE)
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def cause_of(error: str) -> str:
    """`KeyError: 'x7' in row 12` → `KeyError: '…' in row #`. The same failure has the same cause, whatever it was about."""
    text = QUOTED.sub("'…'", error[:READ])
    text = ADDRESS.sub("…", text)
    text = TOKEN.sub(lambda token: "#" if MIXED.search(token[0]) else token[0], text)
    text = HEX.sub("#", text)
    text = NUMBER.sub("#", text)
    return " ".join(text.split())[:LENGTH] or NONE


def fingerprint_of(cause: str) -> str:
    return hashlib.sha256(cause.encode()).hexdigest()[:32]
