"""What README.md tells a user to run does what it says."""

import asyncio
import json
import re
import stat
from pathlib import Path

from service.domain.signing import decode_secret
from tests.cli import inside
from tests.cli.conftest import API_KEY, TICK_SECRET, Live
from tests.cli.process import ROOT, Done, environment

README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """The one block of shell in the README that a comment of this name stands over."""
    [found] = re.findall(rf"<!-- {name}:[^\n]*-->\n```sh\n(.*?)```", README, re.DOTALL)
    return str(found)


async def shell(script: str, env: dict[str, str], *arguments: str, cwd: Path = ROOT) -> Done:
    """Run a script in the plain `sh` of this system."""
    process = await asyncio.create_subprocess_exec(
        *("sh", "-s", "--", *arguments),
        cwd=cwd,
        env=environment(env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(script.encode()), 30)
    return Done(process.returncode or 0, out.decode(), err.decode())


async def test_the_recipe_of_the_readme_claims_a_run_and_then_finds_it_again(live: Live) -> None:
    done = await shell(block("recipe"), {"TOCSIN_URL": live.url, "SHIPMENTS_TICK_SECRET": TICK_SECRET})
    assert done.code == 0, done.err
    first, second = re.findall(r"^(\{.*?\})\nHTTP (\d+)$", done.out, re.DOTALL | re.MULTILINE)
    assert (first[1], second[1]) == ("202", "200")
    claimed, again = json.loads(first[0]), json.loads(second[0])
    assert (claimed["duplicate"], again["duplicate"]) == (False, True)
    assert claimed["run"]["id"] == again["run"]["id"]


async def test_the_registration_of_the_readme_can_be_repeated_and_keeps_its_secret(live: Live, tmp_path: Path) -> None:
    kept = tmp_path / ".tocsin"
    kept.mkdir()
    (kept / "bootstrap.key").write_text(API_KEY + "\n")
    secrets, codes = set(), []
    for _ in range(2):
        done = await shell(block("registration"), {"TOCSIN_URL": live.url}, cwd=tmp_path)
        assert done.code == 0, done.out + done.err
        codes.append(done.out)
        secrets.add((kept / "my-first.secret").read_text())
    gone = await inside.call("subscribers", "delete", "my-first", "--yes", env=live.env)  # the others wait for nobody
    assert gone.code == 0, gone.err
    [secret] = secrets
    assert codes == ["HTTP 201\n", "HTTP 200\n"]
    assert decode_secret(secret.strip())
    for file in ("my-first.secret", "authorization.header"):
        assert stat.S_IMODE((kept / file).stat().st_mode) == 0o600
