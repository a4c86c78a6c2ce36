"""`tocsin demo` as a newcomer runs it: to the end, and then once more with Ctrl-C."""

import json
import re
import signal
import socket
from pathlib import Path

import pytest

from service.cli import demo_stage
from tests.cli.process import ROOT, started
from tests.cli.test_readme import shell


@pytest.mark.timeout(150)
async def test_the_demo_settles_tells_why_and_runs_again(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        env = {"TOCSIN_PORT": str(taken.getsockname()[1]), "TOCSIN_DATABASE_URL": "postgresql://left@alone/please"}
        async with started("demo", "--exit", env=env, cwd=tmp_path) as demo:
            assert await demo.ended(seconds=120) == 0
    told = "\n".join(demo.out)
    assert "duplicate: true, the same run" in told
    assert re.search(r"^settled: 200 events, 5,000 deliveries", told, re.MULTILINE)
    assert "every signature was right" in told
    for kind, ends in {
        r"14\s+answers 200": r"2,800 delivered\s+2,800\s+200 delivered",
        r"3\s+throttles": r"600 delivered\s+1,200\s+429 throttled, 200 delivered",
        r"3\s+fails twice": r"600 delivered\s+1,800\s+500 server_error, 500 server_error, 200 delivered",
        r"1\s+applies, hangs up": r"200 delivered\s+400\s+disconnected, 200 delivered",
        r"1\s+takes the request and never answers": r"200 exhausted \(attempts\)\s+400\s+timeout, timeout",
        r"1\s+never answers, and cannot deduplicate": r"200 ambiguous \(timeout-may-have\S+\s+200\s+timeout",
        r"1\s+says no": r"200 rejected \(rejected-by-receiver\)\s+200\s+422 rejected",
        r"1\s+nobody listens": r"200 exhausted \(attempts\)\s+600\s+unreachable, unreachable, unreachable",
    }.items():
        assert re.search(rf"{kind}.*{ends}", told), kind

    async with started("demo", env=env | {"TOCSIN_PORT": "0"}, cwd=tmp_path) as again:
        await again.said("duplicate: true, the same run")
        url = (await again.said("subscribers are registered at")).split()[-1].rstrip(".")
        [line] = re.findall(r"^  (curl .*/v1/runs/.*)$", told, re.MULTILINE)
        pasted = await shell(re.sub(r"http://127.0.0.1:\d+", url, line), {})
        assert json.loads(pasted.out)["settled"]
        again.signal(signal.SIGINT, group=True)
        assert await again.ended(seconds=30) == 0
        assert again.out[-1] == "Stopped."
    assert not (tmp_path / ".tocsin/demo/postgres/postmaster.pid").exists()


def test_the_job_of_the_demo_is_the_job_of_the_examples() -> None:
    statement = re.compile(r'statement = """\n(.*?)"""', re.DOTALL)
    example = (ROOT / "examples/tocsin.toml").read_text(encoding="utf-8")
    assert statement.findall(demo_stage.CONFIG) == statement.findall(example)
