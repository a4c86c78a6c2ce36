"""Text from the far end: readable, bounded, and harmless to a database, a log and a page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.excerpts import EXCERPT_BYTES, excerpt, single_line

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
}


@pytest.mark.parametrize(("raw", "text"), SHOWN.items(), ids=range(len(SHOWN)))
def test_what_cannot_be_shown_is_made_visible(raw: bytes, text: str | None) -> None:
    assert excerpt(raw) == text


def test_two_kibibytes_are_kept_and_no_character_is_cut_in_half() -> None:
    assert excerpt(b"x" * 5000) == "x" * EXCERPT_BYTES
    assert excerpt("é".encode() * EXCERPT_BYTES) == "é" * (EXCERPT_BYTES // 2)
    assert excerpt(b"x" + "é".encode() * EXCERPT_BYTES) == "x" + "é" * (EXCERPT_BYTES // 2 - 1)


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
