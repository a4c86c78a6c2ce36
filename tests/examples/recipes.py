"""The recipes of examples/schedulers, and what it takes to run one as its scheduler would."""

import asyncio
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from service.domain.signing import tick_signature
from service.domain.timestamps import format_rfc3339
from tests.cli.conftest import TICK_SECRET
from tests.cli.process import ROOT, Done, environment

FOLDER = ROOT / "examples/schedulers"
JOB = "shipments.expire"

_KNOWN_SHELLS = {"dash": ["dash"], "busybox": ["busybox", "sh"], "bash": ["bash", "--posix"]}
SHELLS = {"sh": ["sh"], **{name: words for name, words in _KNOWN_SHELLS.items() if shutil.which(name)}}
"""`sh`, and the other shells that this machine has."""

TICKERS = {
    **{f"cron-{name}": [*words, str(FOLDER / "cron/tick.sh")] for name, words in SHELLS.items()},
    "python": [sys.executable, str(FOLDER / "python/tick.py")],
}
"""What takes `JOB [CUTOFF]` and rings once, by the same variables."""


def page(name: str) -> str:
    """A file of the recipes."""
    return (FOLDER / name).read_text(encoding="utf-8")


def script_in(text: str, after: str) -> str:
    """The block of shell that stands in a YAML file as a literal (`|`) after this line."""
    [block] = re.findall(rf"^( *){re.escape(after)} *\|\n((?:\1 +.*\n|\n)+)", text, re.MULTILINE)
    return textwrap.dedent(str(block[1]))


async def ran(
    *command: str, env: Mapping[str, str], stdin: bytes = b"", cwd: Path = ROOT, unset: Sequence[str] = ()
) -> Done:
    """Run a recipe to its end."""
    variables = {name: value for name, value in environment(env).items() if name not in unset}
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=variables,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin), 50)
    return Done(process.returncode or 0, out.decode(), err.decode())


def secret_file(folder: Path, secret: bytes = TICK_SECRET.encode() + b"\n") -> str:
    """A file with the secret, by default the right one, as `echo` or an editor leaves it."""
    file = folder / "tick-secret"
    file.write_bytes(secret)
    return str(file)


def slot(*, hours_ago: int) -> str:
    """The full hour so long ago, as a scheduler names it."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours_ago)
    return format_rfc3339(hour)


def is_signed(body: bytes, secret: bytes = TICK_SECRET.encode()) -> bool:
    """Whether a tick's signature is right."""
    tick = json.loads(body)
    return bool(tick["signature"] == tick_signature(secret, tick["runId"], tick["cutoffIso"]))


def with_commands(folder: Path, commands: Mapping[str, str]) -> str:
    """A PATH on which these scripts stand before everything else."""
    folder.mkdir()
    for name, script in commands.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
