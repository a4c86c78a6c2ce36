"""What the figures were measured on."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

LIBRARIES = ("asyncpg", "fastapi", "pydantic", "pyreqwest", "sqlalchemy", "structlog", "tocsin", "uvicorn", "uvloop")
_KIB_PER_GIB = 1024 * 1024


def describe(postgresql: str) -> dict[str, object]:
    """The machine and the software, as it goes into the results; `postgresql` is the server's own version."""
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "memory_gib": round(int(_first("/proc/meminfo", "MemTotal").split()[0]) / _KIB_PER_GIB, 1),
        "load_before": os.getloadavg()[0],
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "postgresql": postgresql,
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def resident_mb(pid: int) -> float:
    """The memory that a process has in RAM now."""
    return int(_first(f"/proc/{pid}/status", "VmRSS").split()[0]) / 1024


def _first(path: str, name: str) -> str:
    """The value on the first line `name: value` of a file under /proc."""
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""
