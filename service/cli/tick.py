"""`tocsin tick`: signs a tick and posts it, as a scheduler would."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from service.cli.api import DEFAULT_URL, Api, ApiRefused, Url, api_key
from service.cli.options import AsJson, acceptable_run_id, command_app
from service.cli.output import plain, print_json
from service.cli.progress import describe, follow
from service.cli.tick_secrets import Secret, signing_secret
from service.domain.errors import Unavailable
from service.domain.signing import tick_signature

app = command_app()

_FIRST_PAUSE_SECONDS = 1.0


@app.command()
def tick(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name in tocsin.toml.")],
    run_id: Annotated[
        str | None,
        typer.Option(
            help="The run's id; the same id again is the same run.",
            show_default="JOB@CUTOFF",
            callback=acceptable_run_id,
        ),
    ] = None,
    cutoff: Annotated[
        str | None,
        typer.Option(help="What is due up to this RFC 3339 time belongs to the run.", show_default="now, in UTC"),
    ] = None,
    url: Url = DEFAULT_URL,
    secret: Secret = None,
    retries: Annotated[
        int, typer.Option(min=0, max=20, help="How often to try again while nobody answers or the database is away.")
    ] = 3,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run until it is settled.")] = False,
    as_json: AsJson = False,
) -> None:
    """Sign a tick and post it: "run JOB as RUN_ID up to CUTOFF".

    Trying again is safe: the same run id and cutoff are the same run, and the answer then says `duplicate`.
    """
    instant = cutoff or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = run_id or f"{job}@{instant}"
    body = {
        "runId": name,
        "cutoffIso": instant,
        "signature": tick_signature(signing_secret(job, secret), name, instant),
    }
    answer = asyncio.run(_ring(url, job, body, retries=retries, wait=wait))
    if as_json:
        print_json(answer)
        return
    verdict = "duplicate: this run was claimed before" if answer["duplicate"] else "accepted"
    typer.echo(plain(f"{verdict}. Run {answer['run']['id']} is {describe(answer['run'])}"))


async def _ring(url: str, job: str, body: dict[str, str], *, retries: int, wait: bool) -> dict[str, Any]:
    """Post the tick, with the run followed to its end where that is wanted."""
    async with Api(url) as api:
        answer = await post_tick(api, job, body, retries)
    if wait:
        async with Api(url, api_key()) as api:
            answer["run"] = await follow(api, answer["run"]["id"])
    return answer


async def post_tick(api: Api, job: str, body: dict[str, str], retries: int) -> dict[str, Any]:
    """Post a signed tick; what says "not now" is tried again after 1, 2, 4 … seconds.

    Raises:
        ApiRefused: the tick was refused, and would be again.
        Unavailable: nobody answered in all the tries.

    """
    pause = _FIRST_PAUSE_SECONDS
    for left in range(retries, -1, -1):
        try:
            answer: dict[str, Any] = await api.call("POST", f"/v1/jobs/{quote(job, safe='')}/ticks", body=body)
        except Unavailable:
            if left == 0:
                raise
        except ApiRefused as refusal:
            if refusal.status == 401:  # noqa: PLR2004
                hint = "compare the secrets; `tocsin sign JOB --explain TICK` says what is wrong with a tick"
                raise ApiRefused(refusal.status, f"{refusal.detail} ({hint})") from None
            raise
        else:
            return answer
        await asyncio.sleep(pause)
        pause *= 2
    raise AssertionError  # the loop returns or raises
