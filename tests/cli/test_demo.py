"""`tocsin demo` as a newcomer runs it: to the end, and then once more with Ctrl-C."""

import asyncio
import json
import re
import signal
import socket
from pathlib import Path

import pytest

from service.cli import demo, demo_cast, demo_stage
from service.cli.api import Api
from service.domain.errors import TocsinError
from service.domain.signing import new_secret
from tests.cli.conftest import API_KEY, Live
from tests.cli.inside import own_logging
from tests.cli.process import ROOT, started
from tests.cli.test_readme import shell

KINDS = {
    r"14\s+answers 200": r"2,800 delivered\s+2,800\s+200 delivered",
    r"3\s+throttles 1 in 25": r"600 delivered\s+624\s+429 throttled, 200 delivered",
    r"3\s+fails 1 in 10 twice": r"600 delivered\s+720\s+500 server_error, 500 server_error, 200 delivered",
    r"1\s+applies, but hangs up": r"200 delivered\s+220\s+disconnected, 200 delivered",
    r"1\s+takes the request and never answers": r"200 exhausted \(deadline\)\s+\d+\s+timeout",
    r"1\s+never answers, and cannot deduplicate": r"\d+ ambiguous \(timeout-may-have\S+, \d+ exhausted .*timeout",
    r"1\s+says no": r"200 rejected \(rejected-by-receiver\)\s+200\s+422 rejected",
    r"1\s+nobody listens": r"200 exhausted \(deadline\)\s+\d+\s+unreachable",
}


@pytest.mark.timeout(180)
async def test_the_demo_settles_tells_why_and_runs_again_after_a_kill(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        env = {"TOCSIN_PORT": str(taken.getsockname()[1]), "TOCSIN_DATABASE_URL": "postgresql://left@alone/please"}
        async with started("demo", "--exit", env=env, cwd=tmp_path) as first:
            assert await first.ended(seconds=120) == 0
    told = "\n".join(first.out)
    assert "duplicate: true, the same run" in told
    assert re.search(r"^settled: 200 events, 5,000 deliveries", told, re.MULTILINE)
    assert "every signature was right" in told
    assert "curl" not in told  # it is gone: there is nothing to go on with
    for kind, ends in KINDS.items():
        assert re.search(rf"{kind}.*{ends}", told), kind

    async with started("demo", env=env | {"TOCSIN_PORT": "0"}, cwd=tmp_path) as killed:
        await killed.said("completed: ")
        killed.signal(signal.SIGKILL)
        await killed.ended()
    async with started("demo", env=env | {"TOCSIN_PORT": "0"}, cwd=tmp_path) as again:
        await again.said("Tocsin stays up", seconds=120)
        told = "\n".join(again.out)
        assert "waiting for a dead worker's leases (up to 10 s)" in told
        assert "every signature was right" in told
        [line] = re.findall(r"^  (curl .*/v1/runs/.*)$", told, re.MULTILINE)
        pasted = await shell(line, {})
        assert json.loads(pasted.out)["settled"]
        assert len(pasted.out.splitlines()) > 10
        again.signal(signal.SIGINT, group=True)
        assert await again.ended(seconds=30) == 0
        assert again.out[-1] == "Stopped."
    assert not (tmp_path / ".tocsin/demo/postgres/postmaster.pid").exists()


async def test_a_subscriber_whose_secret_was_rotated_is_registered_with_the_demos_own_again(live: Live) -> None:
    wanted = {"url": "http://127.0.0.1:9/hook", "eventTypes": ["nothing.ever"], "secret": new_secret(b"d" * 32)}
    async with Api(live.url, API_KEY) as api:
        for path in ("/v1/subscribers/rotated",) * 2:
            await demo_cast._put(api, path, wanted)
            await api.call("POST", f"{path}/rotate-secret", body={"graceSeconds": 0})
        await demo_cast._put(api, path, wanted)
        assert "secret" not in await api.call("PUT", path, body=wanted)  # it is the one that signs


async def test_a_wrong_signature_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TOCSIN_PORT", "0")

    async def nothing_but_a_fault(scene: demo._Scene, *_: object, **__: object) -> None:
        scene._seen.faults += 2

    monkeypatch.setattr(demo, "_work", nothing_but_a_fault)
    with own_logging(), pytest.raises(TocsinError, match="2 signatures were wrong"):
        await demo._demo(asyncio.Event(), leave=True)


def test_the_job_of_the_demo_is_the_job_of_the_examples() -> None:
    statement = re.compile(r'statement = """\n(.*?)"""', re.DOTALL)
    example = (ROOT / "examples/tocsin.toml").read_text(encoding="utf-8")
    assert statement.findall(demo_stage.CONFIG) == statement.findall(example)
