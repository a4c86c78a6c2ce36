"""`tocsin drill`: rehearses the ugly sequences against a running installation, and says which promises were kept."""

import asyncio
import signal
from collections.abc import Sequence
from typing import Annotated

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.drill_evidence import Ruling
from service.cli.drill_hands import Hands
from service.cli.drill_play import Plan, rehearse, so_far
from service.cli.drill_report import document, say_nothing, show, show_line
from service.cli.drill_stage import Stage
from service.cli.drill_ticks import Bell
from service.cli.drill_timeline import Timeline
from service.cli.options import AsJson, command_app
from service.cli.output import print_json
from service.cli.tick_secrets import Secret, known_job, signing_secret
from service.domain.errors import TocsinError
from service.settings import Settings

app = command_app()

_STOPPED = "stopped before it was done: only what had ended is judged; processes that were stopped go on."


@app.command()
def drill(
    job: Annotated[
        str | None, typer.Option(help="Ring this job in the sequences with ticks; best an outbox job of its own.")
    ] = None,
    secret: Secret = None,
    page_size: Annotated[
        int | None, typer.Option(min=1, help="The job's page_size.", show_default="as in tocsin.toml")
    ] = None,
    disruptive: Annotated[
        bool, typer.Option("--disruptive", help="Also stop and kill what --worker-pid names, and the database.")
    ] = False,
    worker_pid: Annotated[
        list[int] | None,
        typer.Option(
            min=2,
            help="A worker of this installation on this machine, to be stopped and killed; once more for each other "
            "one, which is only stopped.",
        ),
    ] = None,
    restart: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Starts the first of them again after it was killed.")
    ] = None,
    receiver_host: Annotated[
        str, typer.Option(help="The address at which Tocsin reaches this machine; the receivers listen there.")
    ] = "127.0.0.1",
    patience: Annotated[float, typer.Option(min=1, help="Seconds to wait for what has to come about.")] = 60,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Rehearse the ugly sequences against a running installation; exit code 1 where a promise broke.

    It needs an API key with scope admin, publishes events of a tenant of its own (drill), and delivers them to
    receivers of its own in this process. What cannot be run is `not run`, with the mend. Nobody else's deliveries are
    touched, unless --job or --disruptive say so: docs/drill.md.
    """
    if (worker_pid or restart) and not disruptive:
        raise typer.BadParameter("--worker-pid and --restart are for --disruptive")
    bell = None if job is None else _bell(job, secret, page_size)
    plan = Plan(bell, Hands(tuple(worker_pid or ()), restart, Settings()) if disruptive else None)
    try:
        broken = asyncio.run(_drill(url, receiver_host, patience, plan, as_json=as_json))
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise TocsinError(_STOPPED) from None
    if broken:
        raise typer.Exit(1)


async def _drill(url: str, host: str, patience: float, plan: Plan, *, as_json: bool) -> bool:
    """Rehearse and print; whether a promise broke."""
    task = asyncio.current_task()
    if plan.hands is not None and task is not None:  # what was stopped has to go on, however this ends
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with Api(url, api_key()) as api, Api(url) as ringer:
        stage = Stage(api, ringer, host, patience, Timeline(say_nothing if as_json else show_line))
        left: Sequence[str] = ()
        stopped: asyncio.CancelledError | None = None
        try:
            verdicts = await rehearse(stage, plan)
        except asyncio.CancelledError as cancelled:
            verdicts, stopped = so_far(stage, plan), cancelled
        finally:
            left = await stage.clear()
    if as_json:
        print_json(document(verdicts, stage, left))
    else:
        show(verdicts, stage, left)
    if stopped is not None:
        raise stopped
    return any(each.ruling is Ruling.BROKEN for each in verdicts)


def _bell(job: str, secret: str | None, page_size: int | None) -> Bell:
    signing = signing_secret(job, secret)
    config = known_job(job, secret)
    return Bell(job, signing, page_size or (config.page_size if config else None))
