"""`tocsin replays`: the bulk replays there were, one of them, following one, stopping one."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, Limit, command_app
from service.cli.output import plain, print_fields, print_json, print_table
from service.cli.replay_progress import announce, describe, follow
from service.cli.things import named
from service.cli.verdicts import Because, called

app = command_app(no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The replay's id, as `tocsin replays list` shows it.")]

_RELEASED = (
    "`replayed` and `completed` speak of release: each is a new generation on its way. What came of them: "
    "`tocsin deliveries`, `tocsin dead-letters`."
)
_COLUMNS = ("ID", "STATE", "MATCHED", "RELEASED", "SKIPPED", "RATE", "FILTER", "BY", "REASON", "CREATED")


@app.callback()
def replays() -> None:
    """Look at bulk replays, which `tocsin replay` starts, and stop one."""


@app.command(name="list")
def list_(limit: Limit = 50, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List bulk replays, newest first."""
    found = asyncio.run(_list(url, limit))
    if as_json:
        print_json(found)
    else:
        print_table(_COLUMNS, [_row(replay) for replay in found], empty="No bulk replays.")


@app.command()
def show(replay_id: Id, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show one bulk replay."""
    found = _called(url, "GET", replay_id)
    if as_json:
        print_json(found)
        return
    print_fields(found)
    if found["replayed"]:
        typer.echo(f"\n{_RELEASED}")


@app.command()
def watch(replay_id: Id, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Follow a bulk replay with a progress bar until it has released everything or was cancelled.

    Released is not arrived: each is a new generation on its way.
    """
    print_ended(asyncio.run(followed(url, replay_id)), as_json)


@app.command()
def cancel(replay_id: Id, reason: Because, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Stop a bulk replay. What it has released stays released."""
    print_ended(_called(url, "POST", replay_id, "/cancel", {"reason": reason}), as_json)


async def followed(url: str, replay_id: str) -> Mapping[str, Any]:
    """How the replay ended."""
    with named("bulk replay", replay_id):
        async with Api(url, api_key()) as api:
            announce(await api.call("GET", _path(replay_id)))
            return await follow(api, replay_id)


def print_ended(replay: Mapping[str, Any], as_json: bool) -> None:
    """Print where a bulk replay stands."""
    if as_json:
        print_json(replay)
    else:
        typer.echo(plain(describe(replay)))


async def _list(url: str, limit: int) -> list[dict[str, Any]]:
    async with Api(url, api_key()) as api:
        return await api.items("/v1/replays", limit, {})


def _called(
    url: str, method: str, replay_id: str, verb: str = "", body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    with named("bulk replay", replay_id):
        return asyncio.run(called(url, method, f"{_path(replay_id)}{verb}", body))


def _path(replay_id: str) -> str:
    return f"/v1/replays/{quote(replay_id, safe='')}"


def _row(replay: dict[str, Any]) -> tuple[object, ...]:
    sought = ", ".join(f"{name} {value}" for name, value in replay["filter"].items())
    counts = (replay["matched"], replay["replayed"], sum(replay["skipped"].values()))
    told = (f"{replay['ratePerSecond']:g}/s", sought, replay["requestedBy"], replay["reason"], replay["createdAt"])
    return (replay["id"], replay["state"], *(f"{count:,}" for count in counts), *told)
