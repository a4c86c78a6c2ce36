"""Whose processes the embedded PostgreSQL are: our own, or a system user's when we are root.

PostgreSQL refuses to run as root. So root gets a system user for it, and the folders above the data and above the
programs are opened for passing through (`o+x`, no reading). Both are said in one log line each.
"""

import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import structlog

from service.domain.errors import ConfigurationError

log = structlog.get_logger(__name__)

SYSTEM_USER = "tocsin-postgres"

_USABLE = stat.S_IROTH | stat.S_IXOTH


@dataclass(frozen=True, slots=True)
class Account:
    """A user and group by number; `foreign` when they are not our own."""

    uid: int
    gid: int
    foreign: bool

    def run(self, *command: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a program as this account, with none of our PostgreSQL settings; its exit code is the caller's."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        who = (self.uid, self.gid, ()) if self.foreign else (None, None, None)
        return subprocess.run(  # noqa: S603 - a program of the wheel, with arguments of our own
            command,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd="/",
            env=environment,
            user=who[0],
            group=who[1],
            extra_groups=who[2],
        )

    def give(self, folder: Path) -> None:
        """Make this account the owner of a folder and all that is in it."""
        if not self.foreign:
            return
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def open_path_to(self, folder: Path) -> None:
        """Let this account pass through a folder and those above it."""
        if not self.foreign:
            return
        opened = [str(path) for path in (folder, *folder.parents) if _add_mode(path, stat.S_IXOTH)]
        if opened:
            log.warning("embedded_postgres.folders_opened", folders=opened, mode="o+x", because="running as root")

    def open_programs(self, *folders: Path) -> None:
        """Let this account use what an installer with a strict umask left to root alone; the first has the programs."""
        if not self.foreign or (folders[0] / "postgres").stat().st_mode & _USABLE == _USABLE:
            return
        for folder in folders:
            for path in (folder, *folder.rglob("*")):
                executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
                _add_mode(path, stat.S_IROTH | (stat.S_IXOTH if executable else 0))


def account_for(files: Path) -> Account:
    """The account that PostgreSQL runs as: the owner of its files if there are any, else ours, else a system user.

    Raises:
        ConfigurationError: the files belong to somebody else, or root cannot add a system user here.

    """
    us = os.geteuid()
    owner = files.stat() if files.exists() else None
    if us != 0:
        if owner and owner.st_uid != us:
            message = (
                "The PostgreSQL files in TOCSIN_DATA_DIR belong to another user: "
                "run as that user, or name another folder in TOCSIN_DATA_DIR"
            )
            raise ConfigurationError(message)
        return Account(us, os.getegid(), foreign=False)
    if owner and owner.st_uid != 0:
        return Account(owner.st_uid, owner.st_gid, foreign=True)
    entry = _system_user()
    return Account(entry.pw_uid, entry.pw_gid, foreign=True)


def _system_user() -> pwd.struct_passwd:
    """The system user, added on the first call on this machine; another process may be adding it as well."""
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        useradd = shutil.which("useradd", path=f"{os.defpath}:/usr/sbin:/sbin")
    if useradd:
        command = [useradd, "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
        command += ["--shell", "/usr/sbin/nologin", SYSTEM_USER]
        done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - no argument from outside
        if done.returncode == 0:
            log.warning("embedded_postgres.user_added", user=SYSTEM_USER, because="running as root")
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        message = (
            "PostgreSQL does not run as root and no system user could be added for it: "
            "run as an ordinary user, or set TOCSIN_DATABASE_URL"
        )
        raise ConfigurationError(message) from None


def _add_mode(path: Path, mode: int) -> bool:
    """Add permission bits where they lack; whether anything had to be changed."""
    has = path.stat().st_mode
    if has & mode == mode:
        return False
    path.chmod(has | mode)
    return True
