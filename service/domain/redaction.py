"""What leaves the house in a log or a trace: URLs as far as their origin, credentials by their kind, nothing long."""

import re
from typing import Final

LONGEST: Final = 2_000
"""Characters of one value; what is longer is cut."""

_MAYBE = re.compile(r"://|_|\s")
"""None of these is in most ids, which are looked at thousands of times a second."""
_SECRET = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?:[^\s/?#\"'<>]*@)?(?P<host>[^\s/?#\"'<>]*)(?P<rest>[/?#][^\s\"'<>]*)?"
    r"|(?P<prefix>\b(?:whsec_|tsk_|(?:bearer|basic)\s+))[A-Za-z0-9._~+/=-]{6,}",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """The text without the paths, queries and users of URLs and what looks like a credential, cut to LONGEST."""
    cut = _SECRET.sub(_masked, text) if _MAYBE.search(text) else text
    return cut if len(cut) <= LONGEST else f"{cut[:LONGEST]}… ({len(cut)} characters)"


def _masked(found: re.Match[str]) -> str:
    """Of a URL its origin, of a credential its kind."""
    if prefix := found["prefix"]:
        return f"{prefix}…"
    return f"{found['scheme']}{found['host']}{'/…' if len(found['rest'] or '') > 1 else found['rest'] or ''}"
