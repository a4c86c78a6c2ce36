"""Follows one run until it is settled, with a bar on a terminal and a line per change elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from service.cli.api import Api
from service.cli.following import Look, Show, Thing, followed
from service.cli.output import console, plain
from service.cli.standstill import Held, Standstill
from service.cli.sweeping import swept
from service.domain.errors import TocsinError

DEAD_LETTERS = ("rejected", "exhausted", "ambiguous")
TERMINAL = ("delivered", *DEAD_LETTERS, "cancelled")

Run = Thing


async def follow(api: Api, run_id: str) -> Run:
    """Poll the run and show how far it is, until it is settled; give back the settled run. What holds it is told.

    Raises:
        TocsinError: the run failed (the message holds its error) or there is no such run.
        Unavailable: the API stayed away for half a minute.

    """
    still, held = Standstill(api), Held(api, run_id)

    async def over(run: Run) -> bool:
        if run["settled"]:
            return True
        if run["state"] == "failed":
            raise TocsinError(_failure(run))
        await still.look()
        await held.look(run)
        return False

    return await followed(api, f"/v1/runs/{quote(run_id, safe='')}", Look(_bar, describe, _state), over)


def finished(run: Run) -> int:
    """How many of the run's deliveries are in a terminal state."""
    return sum(int(run["deliveries"][state]) for state in TERMINAL)


def describe(run: Run) -> str:
    """The run in a few words: where it stands and what its deliveries are."""
    counts = run["deliveries"]
    parts = [f"{counts[state]:,} {state}" for state in (*TERMINAL, "leased", "pending") if counts[state]]
    state = _state(run)
    held = " (its job is paused: `held` until the job is resumed)" if state == "held" else ""
    return (
        f"{state}{held}: {run['events']:,} events, {counts['total']:,} deliveries"
        + (f" ({', '.join(parts)})" if parts else "")
        + swept(run.get("progress"))
    )


def _state(run: Run) -> str:
    return "settled" if run["settled"] else str(run["state"])


def _failure(run: Run) -> str:
    return f"run {run['id']} failed: {run['error'] or 'no reason is recorded'}"


@contextmanager
def _bar() -> Iterator[Show]:
    columns = (
        TextColumn("{task.fields[state]:<9}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f} of {task.fields[of]:,} finished{task.fields[dead]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True)) as progress:
        task = progress.add_task("", total=None, state="claimed", of=0, dead="")

        def show(run: Run) -> None:
            of, dead = int(run["deliveries"]["total"]), sum(int(run["deliveries"][state]) for state in DEAD_LETTERS)
            progress.update(
                task,
                total=of or None,
                completed=finished(run),
                state=plain(_state(run)),
                of=of,
                dead=(f", {dead:,} dead letters" if dead else "") + plain(swept(run.get("progress"))),
            )

        yield show
