"""Lengths of time as a configuration writes them: a whole number and its unit, such as `30d`."""

import re

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,12})([smhd])")


def parse_duration(text: str) -> int | None:
    """Seconds; None for anything but digits with `s`, `m`, `h` or `d` behind them."""
    found = _DURATION.fullmatch(text)
    return int(found[1]) * _SECONDS[found[2]] if found else None


def written(seconds: int) -> str:
    """The same length as a configuration writes it, in the largest unit that needs no fraction."""
    size, unit = next((size, unit) for unit, size in reversed(_SECONDS.items()) if seconds % size == 0)
    return f"{seconds // size}{unit}"


def spoken(seconds: float) -> str:
    """Roughly how long that is, in its two largest units; below a minute in tenths of a second."""
    if seconds < _SECONDS["m"]:
        return f"{seconds:.1f}s"
    left, parts = int(seconds), list[str]()
    for unit, size in reversed(_SECONDS.items()):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
