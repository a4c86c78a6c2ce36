"""`tocsin runs`: the list of runs, newest first."""

import asyncio
from typing import Annotated, Any

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, Limit, command_app
from service.cli.output import print_json, print_table
from service.cli.progress import finished

app = command_app()


@app.command()
def runs(
    job: Annotated[str | None, typer.Option(help="Only runs of this job.")] = None,
    state: Annotated[
        str | None, typer.Option(help="Only runs in this state: claimed, running, completed, failed or held.")
    ] = None,
    limit: Limit = 50,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    found = asyncio.run(_fetch(url, limit, {"job": job, "state": state}))
    if as_json:
        print_json(found)
        return
    print_table(
        ("RUN", "JOB", "RUN ID", "CUTOFF", "STATE", "EVENTS", "FINISHED", "CLAIMED"),
        [_row(run) for run in found],
        empty="No runs found. Ring one with `tocsin tick JOB`.",
    )


async def _fetch(url: str, limit: int, params: dict[str, str | int | None]) -> list[dict[str, Any]]:
    async with Api(url, api_key()) as api:
        return await api.items("/v1/runs", limit, params)


def _row(run: dict[str, Any]) -> tuple[object, ...]:
    state = "settled" if run["settled"] else run["state"]
    done = f"{finished(run):,}/{run['deliveries']['total']:,}"
    return run["id"], run["job"], run["runId"], run["cutoff"], state, f"{run['events']:,}", done, run["claimedAt"]
