"""`tocsin runs`: the list of runs, newest first."""

import asyncio
from typing import Annotated, Any

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, Limit, command_app
from service.cli.output import print_json, print_table
from service.cli.progress import finished
from service.domain.model import RunState

app = command_app()


@app.command()
def runs(
    job: Annotated[str | None, typer.Option(help="Only runs of this job.")] = None,
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.")] = None,
    limit: Limit = 50,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first. A run that is completed and whose deliveries are all finished is settled."""
    found = asyncio.run(_fetch(url, limit, {"job": job, "state": state and state.value}))
    if as_json:
        print_json(found)
        return
    print_table(
        ("ID", "JOB", "RUN ID", "CUTOFF", "STATE", "SETTLED", "EVENTS", "FINISHED", "CLAIMED"),
        [_row(run) for run in found],
        empty="No runs found. Ring one with `tocsin tick JOB`.",
    )


async def _fetch(url: str, limit: int, params: dict[str, str | int | None]) -> list[dict[str, Any]]:
    async with Api(url, api_key()) as api:
        return await api.items("/v1/runs", limit, params)


def _row(run: dict[str, Any]) -> tuple[object, ...]:
    settled = "yes" if run["settled"] else "no"
    done = f"{finished(run):,}/{run['deliveries']['total']:,}"
    state, events = run["state"], f"{run['events']:,}"
    return run["id"], run["job"], run["runId"], run["cutoff"], state, settled, events, done, run["claimedAt"]
