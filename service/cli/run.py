"""`tocsin run`: one run, shown once or followed until it is settled, or tried again."""

import asyncio
from typing import Annotated, Any
from urllib.parse import quote

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, command_app
from service.cli.output import plain, print_fields, print_json
from service.cli.progress import Run, describe, follow
from service.cli.steering import Reason
from service.cli.sweeping import print_swept, swept
from service.cli.things import in_options, named
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
    """Look at one run, or have a failed one tried again."""


@app.command()
def show(run_id: RunId, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show one run and the counts of its deliveries."""
    _print(asyncio.run(_fetch(url, run_id)), as_json)


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
        print_swept(settled.get("progress"))


@app.command()
def retry(run_id: RunId, reason: Reason = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Have a failed run go on from where it stopped; nothing is found or sent twice."""
    body = {} if reason is None else {"reason": reason}
    _print(asyncio.run(_fetch(url, run_id, "POST", "/retry", body)), as_json)


def _print(run: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(run)
        return
    if not swept(run.get("progress")):
        print_fields(run)
        return
    print_fields({name: value for name, value in run.items() if name != "progress"})
    typer.echo()
    print_swept(run["progress"])


async def _fetch(
    url: str, run_id: str, method: str = "GET", verb: str = "", body: dict[str, Any] | None = None
) -> dict[str, Any]:
    with named("run", run_id), in_options({"/reason": "--reason"}):
        async with Api(url, api_key()) as api:
            path = f"/v1/runs/{quote(await own_id(api, run_id), safe='')}{verb}"
            found: dict[str, Any] = await api.call(method, path, body=body)
            return found


async def _follow(url: str, run_id: str) -> Run:
    with named("run", run_id):
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
