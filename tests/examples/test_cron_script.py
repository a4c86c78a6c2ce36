"""The shell script says at the beginning what it would otherwise fail on in the middle."""

from pathlib import Path

import pytest

from tests.examples.recipes import FOLDER, JOB, SHELLS, ran, secret_file
from tests.receivers import Receiver, answer

SCRIPT = str(FOLDER / "cron/tick.sh")

pytestmark = pytest.mark.parametrize("shell", SHELLS)


@pytest.mark.parametrize(
    ("name", "value"),
    [("TICK_PAUSE", "0.5"), ("TICK_PAUSE", "08"), ("TICK_PAUSE", "9" * 30), ("TICK_TRIES", "0"), ("TICK_TRIES", "1e3")],
)
async def test_a_number_that_no_shell_can_count_with_is_refused_by_name(
    tmp_path: Path, shell: str, name: str, value: str
) -> None:
    async with Receiver(then=answer(503)) as receiver:
        env = {"TOCSIN_URL": receiver.url, "TICK_SECRET_FILE": secret_file(tmp_path), name: value}
        done = await ran(*SHELLS[shell], SCRIPT, JOB, env=env)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"tick.sh: {name} must be")
    assert done.err.count("\n") == 1
    assert receiver.requests == []


async def test_a_folder_in_place_of_the_secret_is_called_one(tmp_path: Path, shell: str) -> None:
    done = await ran(*SHELLS[shell], SCRIPT, JOB, env={"TICK_SECRET_FILE": str(tmp_path)})
    assert (done.code, done.out) == (1, "")
    assert "is a folder: TICK_SECRET_FILE names the file" in done.err
    assert done.err.count("\n") == 1
