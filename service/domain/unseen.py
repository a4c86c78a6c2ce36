"""Characters that show nothing, or turn what stands around them: one definition for all who refuse, escape or replace.

They go by the properties that Unicode gives them, not by a list of ours: controls (Cc), formats (Cf), surrogates (Cs),
separators of lines and paragraphs (Zl, Zp). A short list has what the properties call a letter, a symbol or a mark, and
is blank all the same: fillers, variation selectors, code points that are reserved for the like. What becomes of them
depends on the place:

- **Refused**: controls and surrogates in all text that is stored (`jsontext.text_fault`); in reasons, which people read
  beside other words, also what steers (`is_steering`), and a reason in which there is nothing to be seen; in the names
  of API keys, which stand for people, everything unseen. Everything else is let through: the joiners of Persian and of
  emoji, the marks of Arabic and Hebrew are part of what people write, in subjects, run ids and reasons alike.
- **Escaped** in lines of the log for a console: whatever is unseen, joiners too, since a terminal may obey it and
  nothing is lost by it.
- **Replaced** by U+FFFD in excerpts of answers: whatever is unseen but what is attached to a character that can be seen
  (`is_attached`). On the console's pages only what steers: a page sets each text apart by itself.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

REPLACEMENT: Final = "\ufffd"

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SIGNS = frozenset("\u070f\U000110bd\U000110cd")
"""Formats that are drawn, as the numbers' signs of Arabic are, which are told by their direction."""
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U0001d159"
    "\U000e0000-\U000e0fff]"
)
"""Unseen by no category: Default_Ignorable_Code_Point outside of Cf (DerivedCoreProperties), and blank symbols."""
_ATTACHED = re.compile("[\u200c\u200d\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Join_Control and Variation_Selector (Unicode, PropList)."""
_STEERING = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
_KEPT = 4096


def is_unseen(char: str) -> bool:
    """Whether the character shows nothing by itself; a space does, since it keeps words apart."""
    category = unicodedata.category(char)
    if category == "Cf" and (char in _SIGNS or unicodedata.bidirectional(char) == "AN"):
        return False
    return category in _UNSEEN or _BLANK.match(char) is not None


def is_attached(char: str) -> bool:
    """Whether it is unseen, but shapes or joins the characters beside it: in Persian, Mongolian, emoji, Han names."""
    return _ATTACHED.match(char) is not None


def is_steering(char: str) -> bool:
    """Whether it breaks lines, or turns the direction of what stands around it (Unicode Annex 9, explicit formats)."""
    return unicodedata.category(char) in {"Zl", "Zp"} or unicodedata.bidirectional(char) in _STEERING


def is_clear(text: str) -> bool:
    """Whether all of it can be seen: nothing unseen, no space but the usual one, nothing that Unicode does not know."""
    return text.isprintable() and (text.isascii() or not _BLANK.search(text))


def shows_something(text: str) -> bool:
    """Whether there is a letter, a number, a mark of punctuation or a symbol in it that can be seen."""
    return any(unicodedata.category(char)[0] in "LNPS" and not is_unseen(char) for char in text)


class Rewriting(dict[int, str]):
    """For `str.translate`: each character by a rule, asked once for most of them; hostile text makes it grow little."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        """Write `rule(char)` for each character."""
        super().__init__()
        self._rule = rule

    def __missing__(self, code: int) -> str:
        """Ask the rule."""
        told = self._rule(chr(code))
        if len(self) < _KEPT:
            self[code] = told
        return told
