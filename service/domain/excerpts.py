"""Text from the far end, made fit to be stored, logged and shown."""

import html
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

from service.domain.headers import MASK
from service.domain.unseen import REPLACEMENT, Rewriting, is_attached, is_clear, is_unseen

EXCERPT_BYTES: Final = 2048
WINDOW_BYTES: Final = 4 * EXCERPT_BYTES
"""What `excerpt` looks at: a word to hide may begin in the excerpt and end behind it."""

_SHORTEST_HIDDEN: Final = 4
"""Fewer characters are no credential, and would be found all over an answer."""
_SHORTEST_PART: Final = 8
"""The same for one word of a header's value: what follows `Bearer` is hidden by itself, `Bearer` is not."""

_DELETE: Final = "\x7f"


def _visible(char: str) -> str:
    """A control as its picture, but for tabs and line feeds; of what else is unseen, what is attached stays."""
    if char in "\t\n" or not is_unseen(char) or is_attached(char):
        return char
    if char < " ":
        return chr(0x2400 + ord(char))
    return "\u2421" if char == _DELETE else REPLACEMENT


_VISIBLE: Final = Rewriting(_visible)
_CLEAR: Final = Rewriting(lambda char: char if is_clear(char) else REPLACEMENT)


@lru_cache(maxsize=1024)
def hidden(values: tuple[str, ...], urls: tuple[str, ...]) -> re.Pattern[bytes] | None:
    """What an answer must not repeat: header values, the queries of URLs, and the single values in both.

    Each as it was sent, and as JSON and HTML write it. None where there is nothing to hide.
    """
    plain = {word for value in values for word in _of_value(value)}
    plain |= {word for url in urls for word in _of_query(url.partition("?")[2])}
    words = {spelled for word in plain for spelled in _spellings(word)}
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return re.compile(b"|".join(map(re.escape, longest_first))) if words else None


def _of_value(value: str) -> Iterator[bytes]:
    if len(value) >= _SHORTEST_HIDDEN:
        yield value.encode()
    yield from (part.encode() for part in value.split() if len(part) >= _SHORTEST_PART)


def _of_query(query: str) -> Iterator[bytes]:
    pairs = [pair.partition("=") for pair in query.split("&")]
    for text in (query, *(value if equals else name for name, equals, value in pairs)):
        for word in (text.encode(), unquote_to_bytes(text), unquote_to_bytes(text.replace("+", " "))):
            if len(word) >= _SHORTEST_HIDDEN:
                yield word


def _spellings(word: bytes) -> Iterator[bytes]:
    yield word
    try:
        text = word.decode()
    except UnicodeDecodeError:
        return
    written = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], html.escape(text))
    yield from (each.encode() for each in (*written, *(each.replace("/", "\\/") for each in written)))


def excerpt(raw: bytes, hide: re.Pattern[bytes] | None = None) -> str | None:
    """The first 2 KiB of an answer as text, or None of an empty one; `headers.MASK` stands for what is to be hidden.

    What is not UTF-8 becomes U+FFFD; a control character becomes its picture (NUL reads ␀), but for tabs and line
    feeds; what shows nothing becomes U+FFFD, but for what joins or shapes the characters beside it, as in Persian and
    emoji. There is never a NUL or a lone surrogate in it.
    """
    if not raw:
        return None
    kept = _masked(raw[:WINDOW_BYTES], hide) if hide else raw[:EXCERPT_BYTES]
    text = kept.decode("utf-8", "replace")
    if len(raw) > EXCERPT_BYTES:
        text = text.rstrip(REPLACEMENT)  # the cut may have gone through a character
    return text if is_clear(text) else text.translate(_VISIBLE)


def _masked(raw: bytes, hide: re.Pattern[bytes]) -> bytes:
    """The first 2 KiB, masked; a word that crosses their end is not shown in part."""
    kept, at = bytearray(), 0
    for found in hide.finditer(raw):
        if found.start() >= EXCERPT_BYTES:
            break
        kept += raw[at : found.start()] + MASK.encode()
        at = found.end()
    return bytes(kept + raw[at:EXCERPT_BYTES])[:EXCERPT_BYTES]


def single_line(text: str, most: int) -> str:
    """At most `most` characters of a header's value, on one line, with nothing invisible in it."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return cut if is_clear(cut) else cut.translate(_CLEAR)
