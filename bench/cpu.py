"""Who used how much of the processors: what stands in the way where a drain is slower than was wanted."""

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 11, 12
"""Fields of /proc/PID/stat behind the name."""


def seconds(pids: Iterable[int]) -> float:
    """Processor time that these processes have used, in user and system mode; one that is gone counts as nothing."""
    return sum(_ticks(pid) for pid in pids) / _TICKS_PER_SECOND


def family(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _ticks(pid: int) -> int:
    try:
        behind_the_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0
    return int(behind_the_name[_USER]) + int(behind_the_name[_SYSTEM])
