"""`tocsin run show` and `tocsin run watch`: one run, once or until it is settled."""

import asyncio
from typing import Annotated, Any
from urllib.parse import quote

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, command_app
from service.cli.output import plain, print_fields, print_json
from service.cli.progress import Run, describe, follow

app = command_app(no_args_is_help=True)

RunId = Annotated[str, typer.Argument(metavar="ID", help="The run's id, as `tocsin runs` lists it.")]


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
        found: dict[str, Any] = await api.call("GET", f"/v1/runs/{quote(run_id, safe='')}")
        return found


async def _follow(url: str, run_id: str) -> Run:
    async with Api(url, api_key()) as api:
        return await follow(api, run_id)
