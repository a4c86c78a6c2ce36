"""The recipes of schedulers that are not here: what they would send rings a real service, with the recipe's own files.

The service has each recipe's piece of tocsin.toml, with a local issuer in the place of Google and GitHub.
"""

import json
import re
import shlex
import shutil
import tomllib
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from service.domain.timestamps import format_rfc3339
from tests.cli.conftest import Live
from tests.cli.process import Done
from tests.examples.conftest import BEARER
from tests.examples.recipes import FOLDER, JOB, SHELLS, page, ran, script_in, slot, with_commands
from tests.issuers import Issuer
from tests.receivers import Receiver, Request, answer

WORKFLOW = page("github-actions/tick.yml")


def wanted(fragment: str) -> dict[str, Any]:
    """What a recipe's piece of tocsin.toml asks of a token."""
    oidc: dict[str, Any] = tomllib.loads(page(fragment))["jobs"][JOB]["oidc"]
    return {"aud": oidc["audience"], **oidc["claims"]}


async def post(live: Live, job: str, token: str, body: bytes = b"", **headers: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(
            f"{live.url}/v1/jobs/{job}/ticks", content=body, headers={"authorization": f"Bearer {token}", **headers}
        )


async def scheduled(live: Live, token: str, at: str) -> httpx.Response:
    """What Cloud Scheduler sends: a POST without a body, its own headers, its own content type."""
    headers = {
        "content-type": "application/octet-stream",
        "user-agent": "Google-Cloud-Scheduler",
        "x-cloudscheduler": "true",
        "x-cloudscheduler-jobname": "shipments-tick",
        "x-cloudscheduler-scheduletime": at,
    }
    return await post(live, "from.google", token, b"", **headers)


async def test_cloud_scheduler_rings_the_run_of_its_slot_and_a_run_by_hand_is_another(
    live: Live, issuer: Issuer
) -> None:
    token = issuer.google(**wanted("cloud-scheduler/oidc.toml"))
    hour = slot(hours_ago=1)
    first, second = [await scheduled(live, token, hour) for _ in range(2)]
    assert (first.status_code, second.status_code) == (202, 200), first.text
    assert first.json()["run"]["runId"] == f"from.google@{hour}"
    ahead = await scheduled(live, token, format_rfc3339(datetime.now(UTC) + timedelta(hours=1)))
    assert ahead.status_code in {200, 202}
    assert "manual" in ahead.json()["run"]["runId"]


async def test_another_service_account_is_refused(live: Live, issuer: Issuer) -> None:
    token = issuer.google(**{**wanted("cloud-scheduler/oidc.toml"), "email": "else@my-project.iam.gserviceaccount.com"})
    assert (await scheduled(live, token, slot(hours_ago=1))).status_code == 401


@pytest.mark.parametrize("shell", SHELLS)
async def test_the_script_for_gcloud_makes_the_job_once_and_changes_it_afterwards(tmp_path: Path, shell: str) -> None:
    gcloud = 'printf "%s\\n" "$*" >> "$LOG"\ncase "$*" in *describe*) [ -e "$THERE" ] ;; esac\n'
    log, there = tmp_path / "log", tmp_path / "there"
    env = {
        "PATH": with_commands(tmp_path / "bin", {"gcloud": f"#!/bin/sh\n{gcloud}"}),
        "LOG": str(log),
        "THERE": str(there),
        "PROJECT": "my-project",
        "REGION": "europe-west1",
        "TOCSIN_URL": "https://tocsin.example.com/",
    }
    assert (await ran(*SHELLS[shell], str(FOLDER / "cloud-scheduler/create.sh"), env=env)).code == 0
    there.touch()
    assert (await ran(*SHELLS[shell], str(FOLDER / "cloud-scheduler/create.sh"), env=env)).code == 0
    made, changed = [line for line in log.read_text().splitlines() if "--schedule" in line]
    assert made.replace(" create ", " update ") == changed
    assert "iam service-accounts create shipments-tick" in log.read_text()
    assert f"--oidc-token-audience {wanted('cloud-scheduler/oidc.toml')['aud']}" in made
    assert f"--oidc-service-account-email {wanted('cloud-scheduler/oidc.toml')['email']}" in made
    assert f"--uri https://tocsin.example.com/v1/jobs/{JOB}/ticks" in made


async def test_the_script_for_gcloud_and_the_one_for_terraform_make_the_same_job() -> None:
    script, terraform = page("cloud-scheduler/create.sh"), page("cloud-scheduler/main.tf")
    words = shlex.split(script.split('jobs "$verb"')[1].replace("\\\n", " "))
    flags = {flag.removeprefix("--"): value for flag, value in pairwise(words) if flag.startswith("--")}
    assert f'"${{trimsuffix(var.tocsin_url, "/")}}/v1/jobs/{JOB}/ticks"' in terraform
    settings = dict(re.findall(r'^ *(\w+) += "?([^"\n]+)"?$', terraform, re.MULTILINE))
    for flag, setting in {
        "schedule": "schedule",
        "time-zone": "time_zone",
        "attempt-deadline": "attempt_deadline",
        "max-retry-attempts": "retry_count",
        "min-backoff": "min_backoff_duration",
        "max-backoff": "max_backoff_duration",
        "max-doublings": "max_doublings",
        "http-method": "http_method",
    }.items():
        assert flags[flag] == settings[setting], flag


@pytest.mark.parametrize("found", [[tool] if (tool := shutil.which("terraform")) else []], ids=["terraform"])
async def test_terraform_would_write_the_file_in_the_same_way(found: list[str], tmp_path: Path) -> None:
    (tmp_path / "terraform.rc").touch()
    env = {"TF_CLI_CONFIG_FILE": str(tmp_path / "terraform.rc"), "CHECKPOINT_DISABLE": "1"}
    done = [await ran(tool, "fmt", "-check", str(FOLDER / "cloud-scheduler"), env=env) for tool in found]
    assert [(each.code, each.out) for each in done] == [(0, "")] * len(found)


class GitHub:
    """GitHub's side of a workflow: gives a token to whoever shows the request's own."""

    def __init__(self, token: str, audience: str) -> None:
        self.token, self.audience = token, audience

    def __call__(self, request: Request) -> Any:
        """Answer a request for a token."""
        assert request.method == "GET"
        if request.header("authorization") != "Bearer request-token":
            return answer(401)
        assert parse_qs(urlsplit(request.target).query)["audience"] == [self.audience]
        return answer(200, body=json.dumps({"count": 1, "value": self.token}).encode())


async def workflow(live: Live, token: str, folder: Path, run: str, **changes: str) -> Done:
    """The step of the workflow, as a runner starts it."""
    variables = dict(re.findall(r"^ {10}([A-Z_]+): (\S+)$", WORKFLOW, re.MULTILINE))
    assert wanted("github-actions/oidc.toml")["aud"] == f"{variables['TOCSIN_URL']}/v1/jobs/{JOB}/ticks"
    assert variables["TICK_JOB"] == JOB
    step = folder / "step.sh"
    step.write_text(script_in(WORKFLOW, "run:"))
    async with Receiver(then=GitHub(token, f"{live.url}/v1/jobs/from.github/ticks")) as github:
        env = {
            **variables,
            "TICK_JOB": "from.github",
            "TOCSIN_URL": f"{live.url}/",
            "GITHUB_RUN_ID": run,
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "request-token",
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{github.url}/token?api-version=2.0",
            **changes,
        }
        return await ran("sh", "-e", str(step), env=env)


async def test_a_workflow_rings_and_run_again_it_is_the_same_run(live: Live, issuer: Issuer, tmp_path: Path) -> None:
    assert "id-token: write" in WORKFLOW
    assert "shell: sh" in WORKFLOW
    for expected in (False, True):
        token = issuer.github(**wanted("github-actions/oidc.toml"))
        done = await workflow(live, token, tmp_path, "7001")
        assert done.code == 0, done.out + done.err
        mask, body = done.out.splitlines()[:2]
        assert mask == f"::add-mask::{token}"
        assert json.loads(body)["duplicate"] is expected
        assert json.loads(body)["run"]["runId"] == "github-7001"


async def test_a_workflow_that_is_refused_or_gets_no_token_fails(live: Live, issuer: Issuer, tmp_path: Path) -> None:
    other = issuer.github(**{**wanted("github-actions/oidc.toml"), "repository_id": "1"})
    refused = await workflow(live, other, tmp_path, "7002")
    assert refused.code == 1
    assert "::error::the tick was not taken" in refused.out
    without = await workflow(live, other, tmp_path, "7003", ACTIONS_ID_TOKEN_REQUEST_TOKEN="other")
    assert without.code == 1
    assert "GitHub gave no token" in without.out


async def test_an_api_destination_rings_the_run_of_its_slot(live: Live) -> None:
    template = page("eventbridge/template.yaml")
    [given] = re.findall(r"^ *Input: >-\n *(.*)$", template, re.MULTILINE)
    assert "InputPath: $.detail\n" in template
    assert "ApiKeyName: Authorization\n" in template
    assert '"Bearer {{resolve:secretsmanager:${TokenSecret}:SecretString:::${TokenVersion}}}"' in template
    assert f"${{TocsinUrl}}/v1/jobs/{JOB}/ticks" in template
    body = given.replace("<aws.scheduler.scheduled-time>", slot(hours_ago=20)).encode()
    first, second = [await post(live, JOB, BEARER, body, **{"content-type": "application/json"}) for _ in range(2)]
    assert (first.status_code, second.status_code) == (202, 200), first.text
    assert first.json()["run"]["runId"] == f"{JOB}@{slot(hours_ago=20)}"
    assert first.json()["run"]["cutoff"] == slot(hours_ago=20)
    assert (await post(live, JOB, BEARER + "x", body)).status_code == 401


async def test_a_changed_token_is_read_again_and_tocsin_takes_both_in_between() -> None:
    """A reference to a secret is read only when it changes: each deployment has to name the version it made."""
    written = page("eventbridge/README.md")
    first, rotation = written.split("**Change the token**")
    for part, made in ((first, "create-secret"), (rotation, "put-secret-value")):
        steps = [
            part.index(step) for step in ("umask 077 && openssl", made, "--query VersionId", 'TokenVersion="$version"')
        ]
        assert steps == sorted(steps)
    both = tomllib.loads(page("eventbridge/bearer.toml"))["jobs"][JOB]["bearer"]["tokens"]
    assert f'"{both[0]}", "env:' in rotation.split(" put-secret-value ")[0]
