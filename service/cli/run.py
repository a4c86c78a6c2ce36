"""`tocsin run show` and `tocsin run watch`: one run, once or until it is settled."""

import asyncio
from typing import Annotated, Any
from urllib.parse import quote

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, command_app
from service.cli.output import plain, print_fields, print_json
from service.cli.progress import Run, describe, follow
from service.domain.errors import TocsinError
from service.domain.identifiers import parse_uuid

app = command_app(no_args_is_help=True)

RunId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The run's id, or the RUN ID that its tick gave it, as `tocsin runs` lists them."
    ),
]

_NEWEST = 500
"""Among so many runs the one is looked for that a tick gave this RUN ID."""


@app.callback()
def run() -> None:
    """Look at one run."""


@app.command()
def show(run_id: RunId, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show one run and the counts of its deliveries."""
    found = asyncio.run(_fetch(url, run_id))
    if as_json:
        print_json(found)
    else:
        print_fields(found)


@app.command()
def watch(run_id: RunId, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Follow a run with a progress bar until it is settled.

    The exit code is 1 where the run fails, and 0 where it settles, dead letters or not.
    """
    settled = asyncio.run(_follow(url, run_id))
    if as_json:
        print_json(settled)
    else:
        typer.echo(plain(describe(settled)))


async def _fetch(url: str, run_id: str) -> dict[str, Any]:
    async with Api(url, api_key()) as api:
        found: dict[str, Any] = await api.call("GET", f"/v1/runs/{quote(await own_id(api, run_id), safe='')}")
        return found


async def _follow(url: str, run_id: str) -> Run:
    async with Api(url, api_key()) as api:
        return await follow(api, await own_id(api, run_id))


async def own_id(api: Api, given: str) -> str:
    """The run's own id.

    Raises:
        TocsinError: no run is called so, or runs of several jobs are.

    """
    if parse_uuid(given) is not None:
        return given
    called = [run for run in await api.items("/v1/runs", _NEWEST, {}) if run["runId"] == given]
    if len(called) == 1:
        return str(called[0]["id"])
    if not called:
        raise TocsinError(f"none of the newest {_NEWEST} runs has this ID or RUN ID: `tocsin runs` lists both.")
    several = ", ".join(f"{run['id']} of {run['job']}" for run in called)
    raise TocsinError(f"several jobs have a run of this RUN ID, say which by its ID: {several}.")
