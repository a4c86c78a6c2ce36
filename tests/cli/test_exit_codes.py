"""Every command's refusals: exit code 1 with one line that names the mend, 2 for bad usage, never a traceback."""

from pathlib import Path

import pytest

from service.cli.main import COMMANDS
from tests.cli.process import call

DATABASE = "postgresql://u:pw@127.0.0.1:9/d"
NOWHERE = "http://127.0.0.1:9"
TICK = ("tick", "a.job", "--secret", "env:S", "--retries", "0", "--url", NOWHERE)

REFUSED = {
    "nobody answers a list": (("runs", "--url", NOWHERE), {}, "start one with `tocsin up`"),
    "nobody answers a watch": (("run", "show", "x", "--url", NOWHERE), {}, "no Tocsin answers"),
    "nobody answers a tick": (TICK, {"S": "a secret long enough"}, "no Tocsin answers"),
    "the address is none": (("runs", "--url", "ftp://x"), {}, "http://HOST:PORT"),
    "the address lacks http": (("deliveries", "--url", "localhost:8080"), {}, "http://HOST:PORT"),
    "the secret's variable is not set": (TICK, {}, "the environment variable S is not set"),
    "the secret's file is not there": (("sign", "j", "r", "c", "--secret", "file:/nowhere"), {}, "cannot be read"),
    "the secret itself is given": (("sign", "j", "r", "c", "--secret", "hunter2hunter2"), {}, "env:NAME or file:PATH"),
    "the secret is empty": (("sign", "j", "r", "c", "--secret", "-"), {}, "is empty"),
    "there is no such job": (("sign", "j", "r", "c"), {}, "there is no job 'j' in tocsin.toml"),
    "the settings do not fit": (("up",), {"TOCSIN_LEASE_SECONDS": "no"}, "TOCSIN_LEASE_SECONDS"),
    "keys are missing": (("worker",), {"TOCSIN_DATABASE_URL": DATABASE}, "TOCSIN_ENCRYPTION_KEYS"),
    "the database is away": (("migrate",), {"TOCSIN_DATABASE_URL": DATABASE}, "TOCSIN_DATABASE_URL"),
    "the port is taken": (("up",), {"TOCSIN_HOST": "192.0.2.1"}, "TOCSIN_HOST or TOCSIN_PORT"),
    "the description drifted": (("openapi", "--check", "nowhere.json"), {}, "tocsin openapi --write nowhere.json"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refusal_is_one_line_and_exit_code_1(case: str, tmp_path: Path) -> None:
    arguments, env, words = REFUSED[case]
    done = await call(*arguments, env=env, cwd=tmp_path)
    assert done.code == 1
    assert words in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert done.out == ""
    assert "hunter2" not in done.err
    assert "pw@" not in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("sign", "j"),
        ("runs", "--limit", "0"),
        ("runs", "--limit", "many"),
        ("keys",),
        ("keys", "create", "n", "--scope", "root"),
        ("receiver", "--answers", "refuse,200"),
        ("tick",),
        ("up", "--port", "1"),
    ],
)
async def test_bad_usage_is_exit_code_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = await call(*arguments, cwd=tmp_path)
    assert done.code == 2
    assert "Traceback" not in done.err


async def test_help_and_version_are_exit_code_0() -> None:
    asked = await call("--help")
    assert asked.code == 0
    assert all(command in asked.out for command in COMMANDS)
    assert (await call("--version")).out.startswith("tocsin ")
