"""Signs that a PostgreSQL server is alive: something answers on its socket, its process is there."""

import os
import socket
from pathlib import Path

PORT = 5432
"""Part of the socket's name only; the embedded server listens on no network address."""

STARTUP_LOG = "startup.log"
"""What the server says before it writes to its own log."""

_DEAD = "ZX"
"""States of a process that has ended, but that nobody has asked about: common where process 1 is no init."""


def answers(folder: Path) -> bool:
    """Whether something listens on the socket in this folder."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(folder / f".s.PGSQL.{PORT}"))
        except OSError:
            return False
    return True


def is_postgres(pid: int) -> bool:
    """Whether the process of this number is a living PostgreSQL; after a reboot it may be anybody.

    Where there is no /proc to tell, any living process counts as one.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").partition(" (")[2].rpartition(") ")
    except OSError:
        return not Path("/proc/self/stat").exists()
    return name == "postgres" and rest[:1] not in _DEAD


def forget_the_dead(*locks: Path) -> None:
    """Remove lock files whose process is no living PostgreSQL.

    PostgreSQL does so by itself, except where the number was given to another program since, or where the dead
    process is still listed.
    """
    for lock in locks:
        try:
            pid = int(lock.read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            continue
        if not is_postgres(pid):
            lock.unlink(missing_ok=True)


def last_words(files: Path) -> str:
    """Why the server whose files these are did not come up, in its own words; empty when it said nothing."""
    logs = sorted((files / "log").glob("*.log"), key=lambda path: path.stat().st_mtime)[-1:]
    lines = [line for log in (files / STARTUP_LOG, *logs) if log.exists() for line in _tail(log)]
    return "\n".join(line.partition("UTC ")[2] or line for line in lines if "FATAL:" in line or "PANIC:" in line)


def _tail(path: Path) -> list[str]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        return file.read().decode(errors="replace").splitlines()[-5:]
