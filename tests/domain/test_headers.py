"""A subscriber's own headers: what could break or forge a request is refused when it is configured."""

import pytest

from service.domain.headers import MASK, header_faults, mask_faults

FINE = {"X-Api-Key": "s3cret", "Authorization": "Bearer abc.def-1", "x": "", "X_a~b": "a b  c", "X-Long": "v" * 1024}

BAD_VALUES: list[object] = [
    *("1\r\nX-B: 2", "a\nb", "a\rb", "a\x00b", "a\tb", "\x7f", "é", "٥", "\ud800", " a", "a ", " "),
    "v" * 1025,
    "v" * 65536,
    *(1, None, True, 1.5, [], {}, b"a"),
]
BAD_NAMES = [
    "",
    "X A",
    "X:A",
    "X\r\nA",
    "X\x00",
    "é",
    "X/A",
    "(X)",
    "[x]",
    "{x}",
    '"x"',
    "x@y",
    "x,y",
    "x" * 101,
    "\ud800",
]
RESERVED = [
    *("Host", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Expect", "Date"),
    *("Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Proxy-Authorization", "Proxy-Connection"),
    *("Webhook-Id", "Webhook-Signature", "Webhook-Timestamp", "Webhook-Anything", "Idempotency-Key", "User-Agent"),
    *("Tocsin-Run", "Tocsin-Attempt", "Tocsin-Generation", "Tocsin-Later", "Traceparent", "Tracestate"),
    "Accept-Encoding",
]


def test_ordinary_headers_pass() -> None:
    assert header_faults(FINE) == []
    assert header_faults({}) == []


@pytest.mark.parametrize("value", BAD_VALUES, ids=range(len(BAD_VALUES)))
def test_a_value_that_cannot_stand_in_a_header_is_refused_at_its_pointer(value: object) -> None:
    (problem,) = header_faults({"X-A": value})
    assert problem.pointer == "/headers/X-A"
    assert problem.detail.startswith("a header's value")


@pytest.mark.parametrize("name", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_a_name_that_is_no_token_is_refused_without_being_repeated(name: str) -> None:
    (problem,) = header_faults({name: "v"})
    assert problem.pointer == "/headers"
    assert not name or name not in problem.detail.replace("1 to 100", "")


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("spelled", [str.lower, str.upper, str])
def test_what_tocsin_and_the_transport_set_is_reserved_in_any_case(name: str, spelled: type[str]) -> None:
    (problem,) = header_faults({spelled(name): "v"})
    assert "set by Tocsin or by the transport" in problem.detail


def test_names_that_differ_by_case_alone_are_one_header() -> None:
    (problem,) = header_faults({"X-A": "1", "x-a": "2"})
    assert problem.pointer == "/headers/x-a"
    assert "twice" in problem.detail


def test_at_most_twenty_headers() -> None:
    assert header_faults({f"X-{number}": "v" for number in range(20)}) == []
    (problem,) = header_faults({f"X-{number}": "v" for number in range(200)})
    assert problem.pointer == "/headers"


def test_every_fault_is_told_at_once() -> None:
    assert len(header_faults({"Host": "internal", "X A": "\r\n", "X-B": "fine"})) == 3


def test_a_tilde_in_a_name_is_escaped_in_its_pointer() -> None:
    (problem,) = header_faults({"X~A": "é"})
    assert problem.pointer == "/headers/X~0A"


def test_the_mask_that_reads_show_is_no_value() -> None:
    (problem,) = mask_faults({"X-A": "1", "X-B": MASK, "X-C": f"{MASK} "})
    assert problem.pointer == "/headers/X-B"
