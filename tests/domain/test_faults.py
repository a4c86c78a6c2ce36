"""What failed exchanges are recorded as: only what surely did not arrive is called unreachable."""

import errno
import re

import pytest

from service.domain.faults import fault
from service.domain.model import Outcome

OUTER = "error sending request for url (https://hooks.example/services/T/SECRET?token=S3)"
CONNECT = "client error (Connect)"
SEND = "client error (SendRequest)"

UNREACHED = {
    "Connection refused (os error {ECONNREFUSED})": "connect: refused",
    "Connection reset by peer (os error {ECONNRESET})": "connect: reset by the receiver",
    "No route to host (os error {EHOSTUNREACH})": "connect: no route to the host",
    "Network is unreachable (os error {ENETUNREACH})": "connect: the network cannot be reached",
    "Connection timed out (os error {ETIMEDOUT})": "connect: timed out",
    "Permission denied (os error {EACCES})": "connect: this machine does not permit it",
    "operation timed out": "connect: timed out",
    "deadline has elapsed": "connect: timed out",
    "invalid peer certificate: certificate expired: verification time 1796058768 (UNIX)": "tls: .* expired",
    "invalid peer certificate: certificate not valid yet: verification time 17": "tls: .* not valid yet",
    'invalid peer certificate: certificate not valid for name "a"; only DnsName("b")': "tls: .* another name",
    "invalid peer certificate: UnknownIssuer": "tls: .* not trusted",
    "invalid peer certificate: BadSignature": "tls: .* not valid",
    "received corrupt message of type InvalidContentType": "tls: .* does not speak TLS on this port",
    "received fatal alert: ProtocolVersion": "tls: .* refused the handshake",
    "tls handshake eof": "tls: the handshake was cut off",
    "something that nobody foresaw": "connect: failed",
}


@pytest.mark.parametrize(("cause", "told"), UNREACHED.items(), ids=range(len(UNREACHED)))
@pytest.mark.parametrize("timed_out", [True, False])
def test_a_failure_while_connecting_is_unreachable_in_coarse_words(cause: str, told: str, timed_out: bool) -> None:
    cause = cause.format_map(vars(errno)) if "os error" in cause else cause
    outcome, detail = fault([OUTER, CONNECT, "tcp connect error", cause], timed_out=timed_out)
    assert outcome is Outcome.UNREACHABLE
    assert re.fullmatch(told, detail)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL])
def test_what_this_machine_lacks_is_our_own_fault(number: int) -> None:
    outcome, _ = fault([OUTER, CONNECT, "tcp open error", f"Whatever (os error {number})"], timed_out=False)
    assert outcome is Outcome.INTERNAL


BROKEN = [
    [OUTER, SEND, "connection closed before message completed"],
    [OUTER, SEND, "connection error", "Connection reset by peer (os error 104)"],
    [OUTER, SEND, "invalid HTTP version parsed"],
    [OUTER, SEND, "message head is too large"],
    ["error decoding response body", "request or response body error", "end of file before message length reached"],
    ["error decoding response body", "request or response body error", "Invalid chunk size line: missing size digit"],
    [OUTER],
    [],
]


@pytest.mark.parametrize("causes", BROKEN, ids=range(len(BROKEN)))
def test_what_fails_after_connecting_may_have_been_received(causes: list[str]) -> None:
    assert fault(causes, timed_out=False).outcome is Outcome.DISCONNECTED
    assert fault(causes, timed_out=True).outcome is Outcome.TIMEOUT


def test_a_url_cannot_pass_for_a_failure_to_connect() -> None:
    forged = f"error sending request for url (https://hooks.example/?{CONNECT} timed out UnknownIssuer)"
    assert fault([forged, SEND, "x"], timed_out=False).outcome is Outcome.DISCONNECTED
    assert fault([forged, CONNECT, "x"], timed_out=False).detail == "connect: failed"


@pytest.mark.parametrize("causes", [*BROKEN, *([OUTER, CONNECT, cause] for cause in UNREACHED)])
def test_nothing_of_the_url_or_of_the_far_ends_words_is_kept(causes: list[str]) -> None:
    detail = fault(causes, timed_out=False).detail
    assert "SECRET" not in detail
    assert "S3" not in detail
    assert "DnsName" not in detail
    assert len(detail) <= 100
