"""Strict JSON: what PostgreSQL, a header or another parser could misread is refused before anyone sees it.

The grammar is RFC 8259 in UTF-8; on top of it come the parts of I-JSON (RFC 7493) that decide what a text means:
no duplicate names, no lone surrogates, no number that turns into infinity. `parse_object` also keeps the exact
source text of each member, because bytes that get signed must not be written anew.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from service.domain.errors import Invalid, NotJson, Problem

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MAX_DEPTH = 100
"""Arrays and objects inside one another; a deeper text is no JSON to us (RFC 8259 section 9 allows the limit)."""
MAX_DIGITS = 4300
"""Digits of one integer: CPython's own limit, kept here so that it cannot be lifted from outside."""
MAX_PROBLEMS = 20
"""How many faults one answer names; a hostile text has more."""

_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[][{}]', re.DOTALL)
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}
_SPACE = re.compile(r"[ \t\n\r]*+")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")

_Path: TypeAlias = "tuple[_Path, str | int] | None"


class _Pairs(dict[str, Json]):
    """An object whose source named some members twice; it never leaves this module."""

    repeated: tuple[str, ...] = ()


def parse(raw: bytes) -> Json:
    """The value that a JSON text stands for.

    Raises:
        NotJson: it is no JSON in UTF-8, nests deeper than MAX_DEPTH, or has an integer longer than MAX_DIGITS.
        Invalid: it is JSON with duplicate names, NaN or infinity, NUL or lone surrogates; pointers say where.

    """
    text = _decode(raw, MAX_DEPTH)
    value, end = _value(text, _skip(text, 0))
    if _skip(text, end) != len(text):
        raise NotJson
    _refuse(_faults(value))
    return value


def parse_object(raw: bytes, *, max_depth: int = MAX_DEPTH) -> tuple[dict[str, Json], dict[str, str]]:
    """A JSON object and, for each of its members, the exact source text of the value (without space around it).

    Raises:
        NotJson: as for `parse`.
        Invalid: as for `parse`, or the text is not an object, or it nests deeper than `max_depth`, which costs little
            to find out.

    """
    text = _decode(raw, max_depth)
    start = _skip(text, 0)
    if not text.startswith("{", start):
        _, end = _value(text, start, _SCANNER)
        raise Invalid(Problem("", "must be a JSON object")) if _skip(text, end) == len(text) else NotJson
    members = list(_members(text, start + 1))
    value = _pairs([(name, member) for name, member, _ in members])
    _refuse(_faults(value))
    return value, {name: source for name, _, source in members}


def pointer(*tokens: str | int) -> str:
    """The RFC 6901 pointer to a place; a name that is not a plain identifier is left out, so input is never echoed."""
    parts: list[str] = []
    for token in tokens:
        if isinstance(token, str) and not _PLAIN_NAME.fullmatch(token):
            break
        parts.append(f"/{token}")
    return "".join(parts)


def text_fault(value: str, *, max_bytes: int, min_bytes: int = 1, controls: bool = False) -> str | None:
    """What is wrong with a text that will be stored or sent, in words without the text; None when nothing is.

    Lengths are bytes of UTF-8. NUL and lone surrogates are refused always, other control characters (Unicode Cc)
    unless `controls`.
    """
    if _UNSTORABLE.search(value):
        return "must not contain NUL or a lone surrogate"
    if not controls and _CONTROL.search(value):
        return "must not contain control characters"
    size = len(value.encode())
    if size < min_bytes:
        return "must not be empty" if size == 0 else f"must have at least {min_bytes} bytes of UTF-8"
    return f"must have at most {max_bytes} bytes of UTF-8" if size > max_bytes else None


def check_text(value: object, where: str, *, max_bytes: int, min_bytes: int = 1, controls: bool = False) -> str:
    """The value, known to be a text that `text_fault` finds nothing wrong with.

    Raises:
        Invalid: it is not a string or not such a text; `where` is the pointer that the problem carries.

    """
    if not isinstance(value, str):
        raise Invalid(Problem(where, "must be a string"))
    fault = text_fault(value, max_bytes=max_bytes, min_bytes=min_bytes, controls=controls)
    if fault:
        raise Invalid(Problem(where, fault))
    return value


def _decode(raw: bytes, max_depth: int) -> str:
    """The text of the bytes, known to nest no deeper than `max_depth`."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise NotJson from None
    depth = 0
    for found in _BRACKETS.finditer(text):
        # An unterminated string matches to the end, so that a hostile text is read once, not once per quote.
        depth += _STEPS.get(found.group(), 0)
        if depth > max_depth:
            raise NotJson if max_depth == MAX_DEPTH else Invalid(Problem("", f"must nest at most {max_depth} deep"))
    return text


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise NotJson
    return int(digits)


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """The object of these members; where names repeat, one that remembers which."""
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    marked = _Pairs(plain)
    marked.repeated = tuple(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    return marked


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer)
_SCANNER = json.JSONDecoder(parse_int=_integer)
"""Builds nothing of its own on the way: quicker where only the grammar matters."""


def _value(text: str, at: int, decoder: json.JSONDecoder = _DECODER) -> tuple[Json, int]:
    """The value that starts exactly at `at`, and where it ends."""
    try:
        return decoder.raw_decode(text, at)
    except ValueError:
        raise NotJson from None


def _skip(text: str, at: int) -> int:
    """The next position that is not JSON white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, mark: str) -> int:
    """The position of the token after `mark`, which must stand at `at` but for white space."""
    at = _skip(text, at)
    if not text.startswith(mark, at):
        raise NotJson
    return _skip(text, at + 1)


def _members(text: str, at: int) -> Iterator[tuple[str, Json, str]]:
    """Name, value and exact source of each member of the object that opened just before `at`; to the text's end."""
    at = _skip(text, at)
    more = not text.startswith("}", at)
    while more:
        if not text.startswith('"', at):
            raise NotJson
        name, at = _value(text, at)
        start = _expect(text, at, ":")
        member, end = _value(text, start)
        yield str(name), member, text[start:end]
        at = _skip(text, end)
        more = text.startswith(",", at)
        if more:
            at = _skip(text, at + 1)
    if _expect(text, at, "}") != len(text):
        raise NotJson


def _faults(root: Json) -> Iterator[Problem]:
    """Every fault in a parsed value; the paths share their tails, so that a long name costs its length once."""
    waiting: list[tuple[_Path, Json]] = [(None, root)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            if _UNSTORABLE.search(value):
                yield Problem(_pointer_of(path), "must not contain NUL or a lone surrogate")
        elif isinstance(value, float):
            if not math.isfinite(value):
                yield Problem(_pointer_of(path), "must be a finite number")
        elif isinstance(value, list):
            waiting.extend(((path, index), item) for index, item in enumerate(value))
        elif isinstance(value, dict):
            yield from _name_faults(path, value)
            waiting.extend(((path, name), member) for name, member in value.items())


def _name_faults(path: _Path, value: dict[str, Json]) -> Iterator[Problem]:
    if isinstance(value, _Pairs):
        for name in value.repeated:
            yield Problem(_pointer_of((path, name)), "appears more than once")
    if any(_UNSTORABLE.search(name) for name in value):
        yield Problem(_pointer_of(path), "must not have a name with NUL or a lone surrogate")


def _pointer_of(path: _Path) -> str:
    tokens: list[str | int] = []
    while path:
        path, token = path
        tokens.append(token)
    return pointer(*reversed(tokens))


def _refuse(faults: Iterator[Problem]) -> None:
    """Raise Invalid with the first few faults, if there is one."""
    named = [fault for fault, _ in zip(faults, range(MAX_PROBLEMS), strict=False)]
    if named:
        raise Invalid(*named)
