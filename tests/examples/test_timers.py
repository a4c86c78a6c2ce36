"""The recipes of cron, systemd and Kubernetes do what their schedulers make of them, with a real service."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from service.domain.timestamps import parse_rfc3339
from tests.cli.conftest import TICK_SECRET, Live
from tests.examples.recipes import FOLDER, JOB, SHELLS, page, ran, script_in, secret_file, slot, with_commands

INSTALLED = "/opt/tocsin/tick.sh"


def at_home(command: str) -> str:
    """A command of a recipe, with the script where it is here."""
    assert INSTALLED in command
    return command.replace(INSTALLED, str(FOLDER / "cron/tick.sh"))


async def test_the_line_of_the_crontab_rings_silently_and_complains_aloud(live: Live, tmp_path: Path) -> None:
    variables = dict(re.findall(r"^([A-Z_]+)=(.*)$", page("cron/crontab"), re.MULTILINE))
    assert {"MAILTO", "CRON_TZ"} <= variables.keys()
    [command] = re.findall(r"^0 2 \* \* \*  tocsin-tick  (.*)$", page("cron/crontab"), re.MULTILINE)
    env = {**variables, "TOCSIN_URL": live.url, "TICK_SECRET_FILE": secret_file(tmp_path)}
    done = await ran("sh", "-c", at_home(command), env=env)
    assert (done.code, done.out, done.err) == (0, "", "")
    wrong = await ran("sh", "-c", at_home(command), env={**env, "TICK_SECRET_FILE": secret_file(tmp_path, b"wrong")})
    assert wrong.code == 1
    assert "tick-refused" in wrong.err


async def test_the_line_for_a_crond_without_variables_rings_too(live: Live, tmp_path: Path) -> None:
    [command] = re.findall(r"^    0 2 \* \* \* (TOCSIN_URL=.*)$", page("cron/README.md"), re.MULTILINE)
    here = command.replace("https://tocsin.example.com", live.url)
    here = here.replace("/etc/tocsin/shipments-tick", secret_file(tmp_path))
    done = await ran("sh", "-c", at_home(here), env={}, unset=["TICK_SECRET_FILE"])
    assert (done.code, done.out, done.err) == (0, "", "")


async def test_the_unit_rings_with_its_credential(live: Live, tmp_path: Path) -> None:
    unit = page("systemd/shipments-tick.service")
    env = dict(re.findall(r"^Environment=(\w+)=(.*)$", unit, re.MULTILINE))
    assert "\nLoadCredential=secret:" in unit
    (tmp_path / "secret").write_text(TICK_SECRET + "\n")
    env["TICK_SECRET_FILE"] = env["TICK_SECRET_FILE"].replace("%d", str(tmp_path))
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    done = await ran(*at_home(command).split(), env={**env, "TOCSIN_URL": live.url})
    assert done.code == 0, done.err
    assert done.json["run"]["job"] == JOB


async def test_systemd_finds_nothing_wrong_with_the_units() -> None:
    units = [str(FOLDER / f"systemd/shipments-tick.{kind}") for kind in ("service", "timer")]
    verifiers = [found] if (found := shutil.which("systemd-analyze")) else []
    done = [await ran(verifier, "verify", *units, env={}) for verifier in verifiers]
    assert [(each.code, each.err) for each in done] == [(0, "")] * len(verifiers)
    assert "AccuracySec=1s" in page("systemd/shipments-tick.timer"), "the run id is named after the minute"


POD = script_in(page("kubernetes/cronjob.yaml"), "-")


async def pod(shell: str, folder: Path, live: Live, job_name: str, secret: bytes = TICK_SECRET.encode()) -> str:
    """Run the container's command as in a pod of this Job; the run's id, or the complaint."""
    path = with_commands(folder, {"tocsin": f'#!/bin/sh\nexec "{sys.executable}" -m service.cli.main "$@"\n'})
    env = {
        "TICK_JOB": JOB,
        "TICK_JOB_NAME": job_name,
        "TICK_SECRET_FILE": secret_file(folder, secret),
        "TOCSIN_URL": live.url,
        "PATH": path,
    }
    done = await ran(*SHELLS[shell], "-c", POD, env=env)
    return done.out if done.code == 0 else f"code {done.code}: {done.err}"


@pytest.mark.parametrize("shell", SHELLS)
async def test_each_pod_of_a_job_rings_the_run_of_its_slot(live: Live, tmp_path: Path, shell: str) -> None:
    at = slot(hours_ago=list(SHELLS).index(shell) + 30)
    name = f"shipments-tick-{int(parse_rfc3339(at).timestamp()) // 60}"
    first, second = [await pod(shell, tmp_path / str(number), live, name) for number in (1, 2)]
    assert first.startswith("accepted"), first
    assert second.startswith("duplicate"), second
    runs = await ran(sys.executable, "-m", "service.cli.main", "runs", "--job", JOB, "--json", env=_reader(live))
    assert f"{JOB}@{at}" in [run["runId"] for run in runs.json]


async def test_a_job_made_by_hand_rings_the_run_of_this_minute_and_a_wrong_secret_fails(
    live: Live, tmp_path: Path
) -> None:
    assert (await pod("sh", tmp_path / "by-hand", live, "shipments-tick-try-2")).startswith(("accepted", "duplicate"))
    refused = await pod("sh", tmp_path / "wrong", live, "shipments-tick-try-3", b"another secret altogether")
    assert refused.startswith("code 1")
    assert "does not belong to this job" in refused


def _reader(live: Live) -> dict[str, str]:
    return {**live.env, "TOCSIN_API_KEY": live.env["TOCSIN_BOOTSTRAP_KEY"]}
