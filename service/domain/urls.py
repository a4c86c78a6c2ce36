"""Which URLs a webhook may have, as far as their text tells; where they lead is for `targets` to judge."""

import re
from ipaddress import ip_address
from typing import Final

MAX_URL_BYTES: Final = 2048

_SHAPE: Final = re.compile(r"https?://(?P<authority>[^/?#]+)", re.IGNORECASE)
_PORT: Final = re.compile(r":[0-9]*\Z")
_LABEL: Final = re.compile(r"[a-z0-9_-]{1,63}")
_MAX_NAME: Final = 253
"""RFC 1035, 2.3.4, without the dots that the wire format counts."""


def text_fault(url: str) -> str | None:
    """What is wrong with a URL before any parser has seen it, as the end of a sentence; it is not repeated.

    URL parsers drop tabs and line breaks, read a backslash as a slash and guess at missing parts; here they do not
    get the chance.
    """
    if len(url.encode("utf-8", "surrogatepass")) > MAX_URL_BYTES:
        return f"must be at most {MAX_URL_BYTES} bytes long"
    if not url.isprintable() or " " in url or "\\" in url:
        return "must not have spaces, control characters or backslashes"
    match = _SHAPE.match(url)
    if match is None:
        return "must begin with https:// or http:// and a host"
    if "@" in match["authority"]:
        return "must not carry a user name or password; use a header for credentials"
    return "must not have a fragment (#)" if "#" in url else None


def written_host(url: str) -> str:
    """The host as it stands in a URL without a text fault, in whatever spelling, without the port."""
    match = _SHAPE.match(url)
    return _PORT.sub("", match["authority"]) if match else ""


def origin(url: str) -> str:
    """Scheme, host and port of a URL without a text fault, each in one spelling: what requests share a destination.

    The port is always written, the host in lower case without a trailing dot.
    """
    match = _SHAPE.match(url)
    authority = match["authority"] if match else ""
    scheme = "https" if url[:5].lower() == "https" else "http"
    port = _PORT.search(authority)
    number = port[0][1:] if port else ""
    host = written_host(url).lower().removesuffix(".")
    return f"{scheme}://{host}:{number or ('443' if scheme == 'https' else '80')}"


def literal(host: str) -> str | None:
    """The IP address that a parsed host is, without brackets; None of a name."""
    bare = host.removeprefix("[").removesuffix("]")
    try:
        ip_address(bare)
    except ValueError:
        return None
    return bare


def host_fault(host: str, written: str) -> str | None:
    """What is wrong with a host, given as the parser understood it and as it was written.

    Parsers read 2130706433, 0x7f.1 and 0177.0.0.1 as 127.0.0.1; whoever writes an address so hides it from readers.
    """
    if bare := literal(host):
        plain = literal(written)
        same = plain is not None and ip_address(plain) == ip_address(bare)
        return None if same else "must write an IP address in its usual form, as in 192.0.2.7 or [2001:db8::7]"
    name = host.removesuffix(".")
    if len(name) > _MAX_NAME or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        return "must have a host name of letters, digits, hyphens and dots"
    return None
