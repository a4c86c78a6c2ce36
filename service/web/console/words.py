"""Instants, durations, numbers, states and other people's text in the words and tones that people read."""

from datetime import UTC, datetime

from markupsafe import Markup

from service.domain.timestamps import format_rfc3339
from service.domain.unseen import REPLACEMENT, Rewriting, is_steering

NEVER_YEAR = 9999
"""The database's infinity arrives as the last year that Python knows."""

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))

_TONES = {
    "good": ("delivered", "completed", "settled", "active", "done", "live"),
    "busy": ("leased", "running", "claimed", "sending"),
    "wait": ("pending", "held", "paused", "throttled", "due", "shadow", "frozen"),
    "bad": (
        "exhausted",
        "rejected",
        "failed",
        "disabled",
        "late",
        "server_error",
        "unreachable",
        "timeout",
        "disconnected",
        "blocked",
        "internal",
    ),
    "doubt": ("ambiguous", "in_doubt"),
}
_STEERLESS = Rewriting(lambda char: REPLACEMENT if is_steering(char) else char)
_TONE_OF = {word: tone for tone, words in _TONES.items() for word in words}


def tone(word: object) -> str:
    """The tone of a state: good, busy, wait, bad or doubt; quiet for all others."""
    return _TONE_OF.get(str(word), "quiet")


def state(word: object, toned: str | None = None) -> Markup:
    """A state as its word beside a dot in its tone, or in the one that is given."""
    return Markup('<span class="state t-{}">{}</span>').format(toned or tone(word), str(word).replace("_", " "))


def outside(text: object) -> Markup:
    """Text that others wrote, set apart in its own direction; a dash for None or nothing.

    Whatever it is made of, it cannot rearrange what stands around it: what could end or turn the setting apart
    (`unseen.is_steering`) is shown as U+FFFD. It is for places where an element may stand; `isolated` is for others.
    """
    return Markup("<bdi>{}</bdi>").format(unturned(text)) if text else Markup("–")


def isolated(text: object) -> str:
    """The same by characters, where no element may stand: in a title, a label, a sentence that is carried on."""
    return f"\u2068{unturned(text)}\u2069"


def unturned(text: object) -> str:
    """The same for what stands in a block of its own, where there is nothing around it but itself."""
    return str(text).translate(_STEERLESS)


def number(value: float | None) -> str:
    """1234567 as 1,234,567, with one decimal where there is one; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}".removesuffix(".0")


def duration(seconds: float | None) -> str:
    """Seconds in the two largest units that matter; a dash for None."""
    if seconds is None:
        return "–"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    left, parts = int(seconds), list[str]()
    for size, unit in _UNITS:
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2])


def ago(at: datetime | None, now: datetime) -> Markup:
    """An instant as the distance from now in one unit, its full form in the title; a dash for None or never."""
    if at is None or at.year >= NEVER_YEAR:
        return Markup("–")
    seconds = (now - at).total_seconds()
    words = duration(abs(seconds)).split(" ")
    near = "now" if abs(seconds) < 1 else " ".join(words[:2])
    told = near if near == "now" else f"{near} ago" if seconds > 0 else f"in {near}"
    return _time(at, told)


def stamp(at: datetime | None) -> Markup:
    """An instant in full, in UTC to the second; a dash for None or never."""
    if at is None or at.year >= NEVER_YEAR:
        return Markup("–")
    return _time(at, at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"))


def _time(at: datetime, told: str) -> Markup:
    exact = format_rfc3339(at)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, exact, told)
