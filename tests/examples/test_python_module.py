"""The Python recipe as a module of another program, and what it says of an address that can be nobody's."""

import sys
import textwrap
from pathlib import Path

import pytest

from tests.examples.recipes import FOLDER, JOB, is_signed, page, ran, secret_file
from tests.receivers import Receiver, answer

SCRIPT = str(FOLDER / "python/tick.py")


async def test_the_lines_of_the_readme_ring_as_they_stand(tmp_path: Path) -> None:
    written = page("python/README.md")
    lines = "    import sys\n" + written.split("\n    import sys\n")[1].split("\n`cutoff`")[0]
    async with Receiver(then=answer(202, body=b'{"duplicate":false}')) as receiver:
        program = textwrap.dedent(lines)
        for there, here in (
            ("/opt/tocsin", str(FOLDER / "python")),
            ("/etc/tocsin/shipments-tick", secret_file(tmp_path)),
            ("https://tocsin.example.com", receiver.url),
        ):
            assert there in program
            program = program.replace(there, here)
        done = await ran(sys.executable, "-c", program, env={}, cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert is_signed(receiver.requests[0].body)
    assert receiver.requests[0].target == f"/v1/jobs/{JOB}/ticks"


@pytest.mark.parametrize(
    "address",
    ["", "tocsin.example.com", "localhost:8080", "ftp://x", "https://", "http://x:port", "http://[", "http://a b"],
)
async def test_an_address_that_no_try_would_mend_is_refused_at_once(tmp_path: Path, address: str) -> None:
    env = {"TOCSIN_URL": address, "TICK_SECRET_FILE": secret_file(tmp_path), "TICK_TRIES": "3", "TICK_PAUSE": "600"}
    done = await ran(sys.executable, SCRIPT, JOB, env=env)
    assert (done.code, done.out) == (1, "")
    assert "with its scheme, like https://" in done.err
