"""Every command's refusals: exit code 1 with one line that names the mend, 2 for bad usage, never a traceback."""

from pathlib import Path

import pytest

from service.cli.main import COMMANDS
from tests.cli import inside, process
from tests.receivers import Receiver, answer

DATABASE = "postgresql://u:pw@127.0.0.1:9/d"
NOWHERE = "http://127.0.0.1:9"
TICK = ("tick", "a.job", "--secret", "env:S", "--retries", "0", "--url", NOWHERE)
SECRET = {"S": "a secret long enough"}
SIGN = ("sign", "j", "r", "2026-11-30T02:00:00Z")

REFUSED: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "nobody answers a list": (("runs", "--url", NOWHERE), {}, "start one with `tocsin up`"),
    "nobody answers a run": (("run", "show", "x", "--url", NOWHERE), {}, "no Tocsin answers"),
    "nobody answers a delivery": (("deliveries", "show", "x", "--url", NOWHERE), {}, "no Tocsin answers"),
    "nobody answers a look at the trail": (("audit", "--url", NOWHERE), {}, "no Tocsin answers"),
    "nobody answers a reconciliation": (("reconcile", "--url", NOWHERE), {}, "no Tocsin answers"),
    "nobody answers a subscriber": (("subscribers", "show", "x", "--url", NOWHERE), {}, "no Tocsin answers"),
    "the subscriber's file is not there": (
        ("subscribers", "put", "x", "/nowhere", "--url", NOWHERE),
        {},
        "cannot be read",
    ),
    "the subscriber's file is no object": (("subscribers", "put", "x", "-", "--url", NOWHERE), {}, "one JSON object"),
    "the secret's folder is not there": (
        ("subscribers", "rotate-secret", "x", "--secret-to", "/nowhere/secret", "--url", NOWHERE),
        {},
        "cannot be written",
    ),
    "nobody answers a tick": (TICK, SECRET, "no Tocsin answers"),
    "the address is none": (("runs", "--url", "ftp://x"), {}, "http://HOST:PORT"),
    "the address lacks http": (("deliveries", "--url", "localhost:8080"), {}, "http://HOST:PORT"),
    "the key's file is not there": (("runs",), {"TOCSIN_API_KEY": "file:/nowhere"}, "cannot be read"),
    "the key is none": (("runs",), {"TOCSIN_API_KEY": "two words"}, "TOCSIN_API_KEY"),
    "the secret's variable is not set": (TICK, {}, "the environment variable S is not set"),
    "the secret's variable is empty": (TICK, {"S": ""}, "the environment variable S is empty"),
    "the secret's file is not there": ((*SIGN, "--secret", "file:/nowhere"), {}, "cannot be read"),
    "the secret itself is given": ((*SIGN, "--secret", "hunter2hunter2"), {}, "env:NAME or file:PATH"),
    "the secret is empty": ((*SIGN, "--secret", "-"), {}, "is empty"),
    "there is no such job": (SIGN, {}, "there is no job 'j' in"),
    "the jobs' file is not there": (SIGN, {"TOCSIN_CONFIG": "/nowhere.toml"}, "TOCSIN_CONFIG names /nowhere.toml"),
    "the settings do not fit": (("up",), {"TOCSIN_LEASE_SECONDS": "no"}, "TOCSIN_LEASE_SECONDS"),
    "the database is away": (("migrate",), {"TOCSIN_DATABASE_URL": DATABASE}, "TOCSIN_DATABASE_URL"),
    "the database of keys is away": (("keys", "list"), {"TOCSIN_DATABASE_URL": DATABASE}, "TOCSIN_DATABASE_URL"),
    "the database of secrets is away": (("reseal",), {"TOCSIN_DATABASE_URL": DATABASE}, "TOCSIN_DATABASE_URL"),
    "the description drifted": (("openapi", "nowhere.json", "--check"), {}, "tocsin openapi --write nowhere.json"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_one_line_and_exit_code_1(case: str, tmp_path: Path) -> None:
    arguments, env, words = REFUSED[case]
    (tmp_path / "none.toml").touch()
    done = inside.run(*arguments, env={"TOCSIN_CONFIG": str(tmp_path / "none.toml"), "TOCSIN_DATA_DIR": "", **env})
    assert done.code == 1
    assert words in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert done.out == ""
    assert "hunter2" not in done.err
    assert "pw@" not in done.err


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"{}", b"[]", b"\xff"])
async def test_an_answer_that_is_not_from_tocsin_is_a_refusal_too(body: bytes) -> None:
    async with Receiver(then=answer(200, body=body)) as elsewhere:
        done = await inside.call("runs", "--url", elsewhere.url)
    assert done.code == 1
    assert "Tocsin" in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("command", "env", "words"),
    [
        ("worker", {"TOCSIN_DATABASE_URL": DATABASE}, "TOCSIN_ENCRYPTION_KEYS"),
        ("up", {"TOCSIN_HOST": "192.0.2.1"}, "TOCSIN_HOST or TOCSIN_PORT"),
        ("serve", {"TOCSIN_CONFIG": "/nowhere.toml", "TOCSIN_PORT": "0"}, "TOCSIN_CONFIG"),
        ("serve", {"TOCSIN_PORT": "tcp://10.0.0.1:8080"}, "enableServiceLinks"),
    ],
)
async def test_a_process_that_cannot_start_says_why_in_its_last_line(
    command: str, env: dict[str, str], words: str, tmp_path: Path
) -> None:
    done = await process.call(command, env=env, cwd=tmp_path)
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("tocsin: ")
    assert words in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("sign", "j"),
        ("sign", "j", "\udcff", "c"),
        ("sign", "j", "", "c"),
        ("sign", "j", "a\nb", "c"),
        ("sign", "j", "r" * 201, "c"),
        ("tick", "j", "--run-id", "a\x7fb"),
        ("tick", "j", "--run-id", ""),
        ("runs", "--limit", "0"),
        ("runs", "--limit", "many"),
        ("runs", "--state", "settled"),
        ("deliveries", "--state", "dead"),
        ("run",),
        ("subscribers",),
        ("keys",),
        ("keys", "create", "n", "--scope", "root"),
        ("receiver", "--answers", "refuse,200"),
        ("receiver", "--answers", "200,sleep"),
        ("tick",),
        ("up", "--port", "1"),
        *(("replay", "--type", "t", "--reason", "r", "--rate", rate) for rate in ("inf", "nan", "1e400", "0")),
        ("subscribers", "rotate-secret", "x", "--grace-seconds", "nan"),
    ],
)
def test_bad_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    assert inside.run(*arguments).code == 2


async def test_help_and_version_are_exit_code_0_also_in_a_process() -> None:
    asked = await process.call("--help")
    assert asked.code == 0
    assert all(command in asked.out for command in COMMANDS)
    assert inside.run("-h").out == inside.run("--help").out
    assert inside.run("subscribers", "put", "-h").code == 0
    assert inside.run("--version").out.startswith("tocsin ")
