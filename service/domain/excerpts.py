"""Text from the far end, made fit to be stored, logged and shown."""

from typing import Final

EXCERPT_BYTES: Final = 2048

_C0: Final = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
_DELETE: Final = {0x7F: 0x2421}
_C1: Final = dict.fromkeys(range(0x80, 0xA0), "\ufffd")
_MISLEADING: Final = dict.fromkeys(
    [0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"
)
"""What turns the direction of the text around it, or breaks lines where nobody looks for a break."""

_VISIBLE: Final = _C0 | _DELETE | _C1 | _MISLEADING


def excerpt(raw: bytes) -> str | None:
    """The first 2 KiB of an answer as text, or None of an empty one.

    What is not UTF-8 becomes U+FFFD; a control character becomes its picture (NUL reads ␀), but for tabs and line
    feeds. There is never a NUL or a lone surrogate in it.
    """
    if not raw:
        return None
    text = raw[:EXCERPT_BYTES].decode("utf-8", "replace")
    if len(raw) > EXCERPT_BYTES:
        text = text.rstrip("\ufffd")  # the cut may have gone through a character
    return text if text.isprintable() else text.translate(_VISIBLE)


def single_line(text: str, most: int) -> str:
    """At most `most` characters of a header's value, on one line, with nothing invisible in it."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(character if character.isprintable() else "\ufffd" for character in cut)
