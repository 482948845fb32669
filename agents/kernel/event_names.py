"""Limits of the type and the subject of an event: each is an entry of an index of PostgreSQL."""

LONGEST_TYPE, LONGEST_SUBJECT = 255, 1024  # characters
INDEXED = 2_600  # bytes of an entry


def too_long(*, type: str, subject: str) -> str:
    """Which of them is too long, and for which limit. Empty: none is."""
    for name, text, longest in (("type", type, LONGEST_TYPE), ("subject", subject, LONGEST_SUBJECT)):
        if len(text) > longest:
            return f"the {name} has {len(text):,} characters; use at most {longest:,}"
        if (size := len(text.encode(errors="surrogatepass"))) > INDEXED:
            return f"the {name} has {size:,} bytes in UTF-8; use at most {INDEXED:,}"
    return ""
