"""Puts the clock of a Python process wrong by CHAOS_CLOCK_OFF seconds: found by the interpreter through PYTHONPATH."""

import os
import time

_right = time.time
_off = float(os.environ.get("CHAOS_CLOCK_OFF", "0"))


def _wrong() -> float:
    return _right() + _off


time.time = _wrong
