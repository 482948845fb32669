"""Text from outside: the charsets it may be written in, and the characters that PostgreSQL cannot store."""

import codecs
import re

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# What web pages and mail are written in. Python has more charsets: some are no text, some take very long.
CHARSETS = frozenset(
    {
        "ascii",
        "utf-8",
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "koi8-r",
        "koi8-u",
        "mac-roman",
        "mac-cyrillic",
        "cp866",
        "cp874",
    }
    | {"shift_jis", "cp932", "euc_jp", "iso2022_jp", "gb2312", "gbk", "gb18030", "big5", "big5hkscs", "euc_kr", "cp949"}
    | {f"iso8859-{part}" for part in range(1, 17)}
    | {f"cp{page}" for page in range(1250, 1259)}
)


def known_charset(name: str) -> str:
    """Python's name of a charset, or UTF-8 for one that is unknown or no text."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        return "utf-8"
    return found if found in CHARSETS else "utf-8"


def storable_text(text: str) -> str:
    """The text with U+FFFD for each character that PostgreSQL cannot store."""
    return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
