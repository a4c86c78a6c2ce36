"""Which headers of their own subscribers may ask for: names, values and number."""

import re
from collections.abc import Mapping
from typing import Final

from service.domain.errors import Problem

MAX_HEADERS: Final = 20
MAX_NAME_BYTES: Final = 100
MAX_VALUE_BYTES: Final = 1024

MASK: Final = "***"
"""Stands where a header's value is not shown. It is no value itself, so that what was read cannot be put back."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, 5.6.2."""
_VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
"""Visible ASCII, with spaces inside it: what RFC 9110, 5.5 leaves when tabs and obs-text are given up."""

_OWN_PREFIXES: Final = ("webhook-", "tocsin-", "proxy-", "sec-", ":")
_RESERVED: Final = frozenset(
    {
        # Framing and routing of the message, which the guard and the body decide.
        *("host", "content-length", "content-type", "content-encoding", "transfer-encoding", "expect", "date"),
        # Hop-by-hop (RFC 9110, 7.6.1), and what negotiates a body that would not be read.
        *("connection", "keep-alive", "te", "trailer", "trailers", "upgrade", "http2-settings", "accept-encoding"),
        # What Tocsin itself says.
        *("user-agent", "idempotency-key", "traceparent", "tracestate"),
    }
)


def header_faults(headers: Mapping[str, object]) -> list[Problem]:
    """What is wrong with a subscriber's own headers; an empty list means that they can be sent as they are.

    A pointer holds a header's name only if that is a well-formed one; no detail repeats a name or a value.
    """
    if len(headers) > MAX_HEADERS:
        return [Problem("/headers", f"must have at most {MAX_HEADERS} entries")]
    problems: list[Problem] = []
    seen: set[str] = set()
    for name, value in headers.items():
        pointer = _pointer(name)
        if fault := _name_fault(name, seen):
            problems.append(Problem(pointer, fault))
        if fault := _value_fault(value):
            problems.append(Problem(pointer, fault))
        seen.add(name.lower())
    return problems


def _pointer(name: str) -> str:
    if len(name) > MAX_NAME_BYTES or not _TOKEN.fullmatch(name):
        return "/headers"
    return "/headers/" + name.replace("~", "~0")


def _name_fault(name: str, seen: set[str]) -> str | None:
    if len(name) > MAX_NAME_BYTES or not _TOKEN.fullmatch(name):
        return f"a header's name must be 1 to {MAX_NAME_BYTES} letters, digits, hyphens and the like, without spaces"
    lowered = name.lower()
    if lowered in _RESERVED or lowered.startswith(_OWN_PREFIXES):
        return "this header is set by Tocsin or by the transport and cannot be changed"
    return "this header appears twice; names do not differ by case" if lowered in seen else None


def _value_fault(value: object) -> str | None:
    if not isinstance(value, str):
        return "a header's value must be a string"
    if len(value) > MAX_VALUE_BYTES:
        return f"a header's value must be at most {MAX_VALUE_BYTES} bytes"
    if not _VALUE.fullmatch(value):
        return "a header's value must be visible ASCII characters, with spaces only between them"
    return None


def mask_faults(headers: Mapping[str, object]) -> list[Problem]:
    """Each header whose value is the mask that reads show: whoever sends it back would lose the real one."""
    detail = f"{MASK} is what is shown in place of the value: give the value itself, or leave the header out"
    return [Problem(_pointer(name), detail) for name, value in headers.items() if value == MASK]
