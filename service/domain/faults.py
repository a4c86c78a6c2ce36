"""What a failed exchange says: whether the request can have been received, and why it failed, in coarse words."""

import re
from collections.abc import Sequence
from errno import (
    EACCES,
    EADDRNOTAVAIL,
    ECONNABORTED,
    ECONNREFUSED,
    ECONNRESET,
    EHOSTUNREACH,
    EMFILE,
    ENETUNREACH,
    ENFILE,
    ENOBUFS,
    ENOMEM,
    EPERM,
    EPIPE,
    ETIMEDOUT,
)
from typing import Final, NamedTuple

from service.domain.model import Outcome

_CONNECTING: Final = "client error (Connect)"
"""How the transport marks a failure before any byte of a request was written."""

_OS_ERROR: Final = re.compile(r"\(os error ([0-9]{1,5})\)")
_UNREACHED: Final = {
    EACCES: "connect: this machine does not permit it",
    ECONNABORTED: "connect: aborted",
    ECONNREFUSED: "connect: refused",
    ECONNRESET: "connect: reset by the receiver",
    EHOSTUNREACH: "connect: no route to the host",
    ENETUNREACH: "connect: the network cannot be reached",
    EPERM: "connect: this machine does not permit it",
    EPIPE: "connect: closed by the receiver",
    ETIMEDOUT: "connect: timed out",
}
_OURS: Final = {
    EADDRNOTAVAIL: "this machine has no free port to connect from",
    EMFILE: "this process has too many open files; raise its limit (ulimit -n)",
    ENFILE: "this machine has too many open files",
    ENOBUFS: "this machine is out of network buffers",
    ENOMEM: "this machine is out of memory",
}
"""Faults of this machine, for which the receiver is not to blame."""

_UNREACHED_SIGNS: Final = (
    ("certificate expired", "tls: the receiver's certificate has expired"),
    ("certificate not valid yet", "tls: the receiver's certificate is not valid yet"),
    ("certificate not valid for name", "tls: the receiver's certificate is for another name"),
    ("UnknownIssuer", "tls: the receiver's certificate comes from an issuer that is not trusted"),
    ("invalid peer certificate", "tls: the receiver's certificate is not valid"),
    ("received corrupt message", "tls: the receiver does not speak TLS on this port"),
    ("received fatal alert", "tls: the receiver refused the handshake"),
    ("handshake", "tls: the handshake was cut off"),
    ("timed out", "connect: timed out"),
    ("deadline has elapsed", "connect: timed out"),
    ("dns error", "dns: look-up failed"),
)
_BROKEN_SIGNS: Final = (
    ("message head is too large", "the answer's headers are too large"),
    ("invalid HTTP", "the answer is not HTTP"),
    ("nvalid chunk", "the answer's body is not framed as HTTP"),
    ("end of file before message length", "the connection was closed before the answer was complete"),
    ("connection closed before message completed", "the connection was closed before an answer came"),
    ("unexpected end of chunk", "the connection was closed before the answer was complete"),
    ("unexpected EOF during chunk", "the connection was closed before the answer was complete"),
    ("reset by peer", "the connection was reset before the answer was complete"),
    ("Broken pipe", "the connection was closed while the request was being sent"),
    ("fatal alert", "the receiver ended the TLS connection"),
)


class Fault(NamedTuple):
    """How a failed exchange is recorded; `detail` is one of this module's own sentences, never the far end's words."""

    outcome: Outcome
    detail: str


def fault(causes: Sequence[str], *, timed_out: bool) -> Fault:
    """The fault behind the transport's chain of causes, outermost first; the texts themselves hold URLs and names.

    Only what failed while connecting is `unreachable`. All else may have been received, whatever it looks like.
    """
    if _CONNECTING in causes:
        return _unreached(causes)
    if timed_out:
        return Fault(Outcome.TIMEOUT, "no complete answer in time")
    return Fault(Outcome.DISCONNECTED, _told(causes, _BROKEN_SIGNS, "the connection failed after the request went out"))


def _unreached(causes: Sequence[str]) -> Fault:
    match = _OS_ERROR.search(causes[-1])
    number = int(match[1]) if match else None
    if number in _OURS:
        return Fault(Outcome.INTERNAL, _OURS[number])
    if number in _UNREACHED:
        return Fault(Outcome.UNREACHABLE, _UNREACHED[number])
    return Fault(Outcome.UNREACHABLE, _told(causes, _UNREACHED_SIGNS, "connect: failed"))


def _told(causes: Sequence[str], signs: Sequence[tuple[str, str]], otherwise: str) -> str:
    said = "\n".join(causes[1:])  # the outermost cause quotes the URL, in which anything may stand
    return next((told for sign, told in signs if sign in said), otherwise)
