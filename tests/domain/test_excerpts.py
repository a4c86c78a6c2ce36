"""Text from the far end: readable, bounded, and harmless to a database, a log and a page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.excerpts import EXCERPT_BYTES, WINDOW_BYTES, excerpt, hidden, single_line

SHOWN = {
    b"": None,
    b"ok": "ok",
    b'{"error":\t"no"}\n': '{"error":\t"no"}\n',
    b"a\x00b": "a\u2400b",
    b"\x1b[31mred\r\n": "\u241b[31mred\u240d\n",
    b"\x7f": "\u2421",
    b"\xc2\x85": "\ufffd",
    b"\xff\xfe": "\ufffd\ufffd",
    b"\xed\xa0\x80": "\ufffd\ufffd\ufffd",
    "right-to-left \u202e override".encode(): "right-to-left \ufffd override",
    "line\u2028separator".encode(): "line\ufffdseparator",
    "żółć 漢字 🔔".encode(): "żółć 漢字 🔔",
    "می\u200cروم 👩\u200d🚒 ❤\ufe0f".encode(): "می\u200cروم 👩\u200d🚒 ❤\ufe0f",
    "\ufeffpass\u00adword\u3164\u061c".encode(): "\ufffdpass\ufffdword\ufffd\ufffd",
}


@pytest.mark.parametrize(("raw", "text"), SHOWN.items(), ids=range(len(SHOWN)))
def test_what_cannot_be_shown_is_made_visible(raw: bytes, text: str | None) -> None:
    assert excerpt(raw) == text


def test_two_kibibytes_are_kept_and_no_character_is_cut_in_half() -> None:
    assert excerpt(b"x" * 5000) == "x" * EXCERPT_BYTES
    assert excerpt("é".encode() * EXCERPT_BYTES) == "é" * (EXCERPT_BYTES // 2)
    assert excerpt(b"x" + "é".encode() * EXCERPT_BYTES) == "x" + "é" * (EXCERPT_BYTES // 2 - 1)


HIDE = hidden(("Bearer tok/en+1234==", 'a"b\\cde', "on"), ("https://x.example/hook?token=a%2Fbcdef&page=12&flag",))

HIDDEN = {
    b"Bearer tok/en+1234== is wrong": "*** is wrong",
    b"Bearer was tok/en+1234==": "Bearer was ***",
    rb'{"key": "tok\/en+1234=="}': '{"key": "***"}',
    rb'{"key": "a\"b\\cde"}': '{"key": "***"}',
    b"a&quot;b\\cde": "***",
    b"/hook?token=a%2Fbcdef&page=12&flag": "/hook?***",
    b"/hook?token=a%2Fbcdef&amp;page=12&amp;flag": "/hook?***",
    b'{"token": "a/bcdef", "page": 12}': '{"token": "***", "page": 12}',
    b"flag on": "*** on",
}


@pytest.mark.parametrize(("raw", "text"), HIDDEN.items(), ids=range(len(HIDDEN)))
def test_credentials_that_an_answer_repeats_are_masked(raw: bytes, text: str) -> None:
    assert excerpt(raw, HIDE) == text


@pytest.mark.parametrize("before", range(EXCERPT_BYTES - 21, EXCERPT_BYTES + 1))
def test_no_part_of_a_credential_is_left_at_the_end_of_an_excerpt(before: int) -> None:
    shown = excerpt(b"x" * before + b"Bearer tok/en+1234==" + b"y" * WINDOW_BYTES, HIDE) or ""
    assert not set(shown) - set("x*y")
    assert len(shown) <= EXCERPT_BYTES
    assert "tok" not in (excerpt(b"Bearer tok/en+1234== " * 1000, HIDE) or "")


def test_without_credentials_there_is_nothing_to_hide() -> None:
    assert hidden((), ("https://x.example/hook", "https://x.example/hook?a=1")) is None
    assert hidden(("1", ""), ()) is None


@given(st.binary(max_size=3000))
def test_any_bytes_end_as_text_that_a_database_takes(raw: bytes) -> None:
    text = excerpt(raw) or ""
    assert "\x00" not in text
    text.encode()
    assert len(text) <= EXCERPT_BYTES


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_a_single_line_is_short_and_printable(text: str, most: int) -> None:
    line = single_line(text, most)
    assert len(line) <= most
    assert line.isprintable()
    line.encode()
