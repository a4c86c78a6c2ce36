"""Which characters show nothing or turn what stands around them: by Unicode's properties, the same for everyone."""

import sys
import unicodedata

from service.domain.unseen import Rewriting, is_attached, is_clear, is_steering, is_unseen, shows_something

DRAWN = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Prepended_Concatenation_Mark of PropList.txt: formats by category, and drawn."""
FILLERS = "\u034f\u115f\u1160\u17b4\u2800\u3164\ufe0f\uffa0\U000e0101"
WORDS = ("می\u200cروم", "👩\u200d🚒", "❤\ufe0f", "葛\U000e0100", "שלום", "ship 1")


def test_what_shows_nothing_goes_by_its_category_and_a_few_fillers() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    unseen = {char for char in every if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} - DRAWN
    assert all(is_unseen(char) for char in unseen | set(FILLERS))
    assert not any(is_unseen(char) for char in DRAWN | set("a é漢🔔\u00a0\u0301"))
    assert not any(is_clear(f"a{char}") for char in unseen | set(FILLERS) | {"\u00a0"})


def test_what_turns_the_direction_or_breaks_lines_steers_and_marks_of_direction_do_not() -> None:
    steering = {chr(code) for code in range(sys.maxunicode + 1) if is_steering(chr(code))}
    assert steering == {*map(chr, range(0x2028, 0x202F)), *map(chr, range(0x2066, 0x206A))}


def test_what_people_write_is_something_with_its_joiners_attached() -> None:
    assert all(shows_something(word) for word in WORDS)
    assert all(is_attached(char) for word in WORDS for char in word if is_unseen(char))
    assert not shows_something(f"{FILLERS}\u00ad\u200b\u0301\u00a0")


def test_a_hostile_text_does_not_make_a_rewriting_grow_without_end() -> None:
    rewriting = Rewriting(lambda char: char)
    every = "".join(map(chr, range(0x20000)))
    assert every.translate(rewriting) == every
    assert len(rewriting) < 0x2000
