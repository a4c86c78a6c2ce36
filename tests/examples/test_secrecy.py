"""No recipe shows its secret to the other users of the machine: it is never among the arguments of a program."""

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import TICK_SECRET
from tests.examples.recipes import JOB, TICKERS, ran, secret_file, with_commands
from tests.receivers import Answer, Receiver, Request, answer

PROGRAMS = [name for name in ("openssl", "curl", "od", "cut", "cat", "date", "sed", "tr") if shutil.which(name)]
FORMS = (TICK_SECRET, TICK_SECRET.encode().hex(), " ".join(map(str, TICK_SECRET.encode()[:4])))


def recorders(folder: Path, log: Path) -> str:
    """A PATH on which every program writes down its arguments before it runs."""
    scripts = {
        name: f"#!/bin/sh\nprintf '%s\\n' '{name}' \"$@\" >> '{log}'\nexec '{shutil.which(name)}' \"$@\"\n"
        for name in PROGRAMS
    }
    return with_commands(folder, scripts)


def command_lines() -> str:
    """What `ps` shows at this moment."""
    shown = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown.append(file.read_bytes().decode(errors="replace"))
        except OSError:
            continue  # it has ended in between
    return "\n".join(shown)


@pytest.mark.parametrize("ticker", TICKERS)
async def test_the_secret_is_no_argument_of_any_program(tmp_path: Path, ticker: str) -> None:
    log, seen = tmp_path / "log", []

    def look(_: Request) -> Answer:
        seen.append(command_lines())
        return answer(202, body=b'{"duplicate":false}')

    async with Receiver(then=look) as receiver:
        env = {
            "TOCSIN_URL": receiver.url,
            "TICK_SECRET_FILE": secret_file(tmp_path),
            "PATH": recorders(tmp_path / "bin", log),
        }
        log.touch()
        assert (await ran(*TICKERS[ticker], JOB, env=env)).code == 0
    arguments = log.read_text() + "".join(seen)
    assert ticker == "python" or {"openssl", "curl"} <= set(log.read_text().split("\n"))
    assert not [form for form in FORMS if form in arguments]


async def test_the_recorders_would_see_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = 'printf %s x | openssl dgst -sha256 -hmac "$(cat "$TICK_SECRET_FILE")" -r'
    env = {"TICK_SECRET_FILE": secret_file(tmp_path), "PATH": recorders(tmp_path / "bin", log)}
    assert (await ran("sh", "-c", script, env=env)).code == 0
    assert TICK_SECRET in log.read_text()
