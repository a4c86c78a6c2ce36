"""Strict JSON: what is taken, what is refused and where, and that exact source text survives."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.errors import Invalid, NotJson
from service.domain.jsontext import MAX_DEPTH, MAX_PROBLEMS, check_text, parse, parse_object, pointer, text_fault

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
)
NAMES = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=20)

NO_JSON = {
    "nothing": b"",
    "space only": b"  \n",
    "half an object": b'{"a":1',
    "no value": b'{"a":}',
    "no colon": b'{"a" 1}',
    "no comma": b'{"a":1 "b":2}',
    "comma at the end": b'{"a":1,}',
    "comma first": b'{,"a":1}',
    "single quotes": b"{'a':1}",
    "name without quotes": b"{a:1}",
    "name that is a number": b"{1:1}",
    "two values": b"{} {}",
    "something behind": b'{"a":1}x',
    "a comment": b"{} // so",
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "UTF-16 without mark": '{"a":1}'.encode("utf-16-le"),
    "Latin-1": b'{"a":"\xe9"}',
    "UTF-8 of a surrogate": b'"\xed\xa0\x80"',
    "overlong UTF-8": b'"\xc0\xaf"',
    "bare newline in a string": b'"a\nb"',
    "unterminated string": b'"abc',
    "unterminated escape": b'"abc\\',
    "bad escape": b'"\\x41"',
    "bad unicode escape": b'"\\u12g4"',
    "leading zero": b"01",
    "leading plus": b"+1",
    "hexadecimal": b"0x10",
    "trailing dot": b"1.",
    "leading dot": b".5",
    "arabic digit": "٥".encode(),
    "no-break space": "\u00a0{}".encode(),
    "form feed": b"\x0c{}",
    "integer of 4301 digits": b"9" * 4301,
    "negative integer of 4301 digits": b"[-" + b"9" * 4301 + b"]",
    "nested too deep": b"[" * 101 + b"]" * 101,
    "nested absurdly deep": b"[" * 200_000,
    "objects nested absurdly deep": b'{"a":' * 50_000,
    "form body": b"runId=r1&cutoffIso=x",
    "python": b"{'a': True}",
}

REFUSED = {
    "duplicate names": (b'{"a":1,"a":2}', "/a"),
    "duplicate names, one escaped": (b'{"a":1,"\\u0061":2}', "/a"),
    "duplicate names deep inside": (b'{"x":[0,{"b":1,"b":1}]}', "/x/1/b"),
    "NaN": (b'{"a":NaN}', "/a"),
    "Infinity": (b'{"a":[Infinity]}', "/a/0"),
    "-Infinity": (b'{"a":-Infinity}', "/a"),
    "a float that overflows": (b'{"a":1e400}', "/a"),
    "a negative float that overflows": (b'{"a":-1e400}', "/a"),
    "NUL": (b'{"a":"x\\u0000y"}', "/a"),
    "NUL in a name": (b'{"o":{"x\\u0000y":1}}', "/o"),
    "half an emoji": (b'{"name":"\\ud83d"}', "/name"),
    "surrogates the wrong way round": (b'{"name":"\\udc00\\ud800"}', "/name"),
    "surrogate in a name": (b'{"\\ud83d":1}', ""),
}


@pytest.mark.parametrize("raw", NO_JSON.values(), ids=NO_JSON)
def test_what_is_no_json_is_refused_as_such(raw: bytes) -> None:
    with pytest.raises(NotJson):
        parse(raw)
    with pytest.raises(NotJson):
        parse_object(raw)


@pytest.mark.parametrize(("raw", "where"), REFUSED.values(), ids=REFUSED)
def test_json_that_others_would_misread_is_refused_with_a_pointer(raw: bytes, where: str) -> None:
    for reader in (parse, parse_object):
        with pytest.raises(Invalid) as refusal:
            reader(raw)
        assert [problem.pointer for problem in refusal.value.problems] == [where]


@pytest.mark.parametrize("raw", [b"[]", b"1", b'"a"', b"null", b" true "])
def test_a_body_that_is_no_object_is_refused_at_its_root(raw: bytes) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_object(raw)
    assert [(p.pointer, p.detail) for p in refusal.value.problems] == [("", "must be a JSON object")]


def test_the_exact_source_of_each_member_is_kept() -> None:
    raw = b' { "b" : 1 ,"a":1.0,"n":\t12345678901234567890123, "e":1E2,"o":{"x" : [1,2 ] },"s":"\\u00e9\xc3\xa9" } \n'
    value, sources = parse_object(raw)
    assert sources == {
        "b": "1",
        "a": "1.0",
        "n": "12345678901234567890123",
        "e": "1E2",
        "o": '{"x" : [1,2 ] }',
        "s": '"\\u00e9é"',
    }
    assert value == {"b": 1, "a": 1.0, "n": 12345678901234567890123, "e": 100.0, "o": {"x": [1, 2]}, "s": "éé"}


def test_depth_digits_and_pairs_of_surrogates_at_the_limit_are_taken() -> None:
    assert parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) is not None
    assert parse(b"9" * 4300) == int("9" * 4300)
    assert parse(b'"\\ud83d\\ude00"') == "😀"
    assert parse(b'"[[[[ {{{{ \\" [[["') == '[[[[ {{{{ " [[['


def test_a_reader_may_allow_less_depth() -> None:
    assert parse_object(b'{"a":[1],"b":{},"c":"[[["}', max_depth=2)[0] == {"a": [1], "b": {}, "c": "[[["}
    for raw in (b'{"a":[{}]}', b"[[[1]]]", b'{"a":' * 50_000):
        with pytest.raises(Invalid) as refusal:
            parse_object(raw, max_depth=2)
        assert [(p.pointer, p.detail) for p in refusal.value.problems] == [("", "must nest at most 2 deep")]


def test_brackets_in_strings_do_not_count_as_depth() -> None:
    assert parse(b'"' + b"[" * 500 + b'"') == "[" * 500


@pytest.mark.parametrize("raw", [b'"' + b'\\"' * 120_000, b'"' * 250_001, b'"\\' * 120_000], ids=["a", "b", "c"])
def test_a_hostile_string_is_read_in_one_pass(raw: bytes) -> None:
    # Quadratic work would need minutes here, and the suite's own time-out would say so.
    with pytest.raises(NotJson):
        parse(raw)


def test_many_faults_under_a_long_name_stay_a_short_answer() -> None:
    name = "n" * 100_000
    raw = json.dumps({name: ["\x00"] * 20_000}).encode()
    with pytest.raises(Invalid) as refusal:
        parse(raw)
    assert len(refusal.value.problems) == MAX_PROBLEMS
    assert sum(len(p.pointer) + len(p.detail) for p in refusal.value.problems) < 2_000


def test_a_name_that_is_no_identifier_is_not_echoed() -> None:
    with pytest.raises(Invalid) as refusal:
        parse(b'{"ok":{"<script>":{"x":NaN}}}')
    assert [p.pointer for p in refusal.value.problems] == ["/ok"]


@given(VALUES)
def test_every_storable_value_survives(value: Any) -> None:
    assert parse(json.dumps(value).encode()) == value
    assert parse(json.dumps(value, ensure_ascii=False, indent=1).encode()) == value


@given(st.dictionaries(NAMES, VALUES))
def test_each_source_text_is_the_value(value: dict[str, Any]) -> None:
    parsed, sources = parse_object(json.dumps(value, indent=2).encode())
    assert parsed == value
    assert {name: json.loads(source) for name, source in sources.items()} == value


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_from_anywhere_are_parsed_or_refused(raw: bytes) -> None:
    for reader in (parse, parse_object):
        try:
            reader(raw)
        except (NotJson, Invalid):
            continue


@given(st.text(alphabet='[]{}":,\\u0d83e1N', max_size=60))
def test_near_json_agrees_with_the_standard_library(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(NotJson):
            parse(text.encode())
        return
    try:
        assert parse(text.encode()) == expected
    except Invalid:
        assert "Na" in text or "e" in text or "\\u" in text or text.count('"') >= 4


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("nightly-2026-11-30", None),
        ("2025/03/30 10:00", None),
        ("e\u0301", None),
        ("\u200bhourly", None),
        ('"><script>', None),
        ("", "must not be empty"),
        ("é" * 101, "must have at most 200 bytes of UTF-8"),
        ("a\x00b", "must not contain NUL or a lone surrogate"),
        ("a\ud83d", "must not contain NUL or a lone surrogate"),
        ("\r\nX: y", "must not contain control characters"),
        ("a\x7f", "must not contain control characters"),
        ("a\x85", "must not contain control characters"),
        ("a\u0000", "must not contain NUL or a lone surrogate"),
    ],
)
def test_a_text_is_judged_before_it_is_stored(value: str, fault: str | None) -> None:
    assert text_fault(value, max_bytes=200) == fault
    if fault is None:
        assert check_text(value, "/runId", max_bytes=200) == value
        return
    with pytest.raises(Invalid) as refusal:
        check_text(value, "/runId", max_bytes=200)
    assert [(p.pointer, p.detail) for p in refusal.value.problems] == [("/runId", fault)]


@pytest.mark.parametrize("value", [42, None, True, [], {}, math.pi])
def test_what_is_no_string_is_no_text(value: object) -> None:
    with pytest.raises(Invalid) as refusal:
        check_text(value, "/runId", max_bytes=200)
    assert [(p.pointer, p.detail) for p in refusal.value.problems] == [("/runId", "must be a string")]


def test_controls_may_be_let_in_but_never_nul() -> None:
    assert text_fault("a\nb", max_bytes=9, controls=True) is None
    assert text_fault("a\x00b", max_bytes=9, controls=True) == "must not contain NUL or a lone surrogate"
    assert text_fault("ab", max_bytes=9, min_bytes=3) == "must have at least 3 bytes of UTF-8"


def test_a_pointer_stops_at_the_first_name_that_is_no_identifier() -> None:
    assert pointer("a", 0, "b.c") == "/a/0/b.c"
    assert pointer("a", "x y", "b") == "/a"
    assert pointer() == ""
