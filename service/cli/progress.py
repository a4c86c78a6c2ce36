"""Follows one run until it is settled, with a bar on a terminal and a line per change elsewhere."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from service.cli.api import Api
from service.cli.output import console, plain
from service.cli.standstill import Standstill
from service.cli.sweeping import swept
from service.domain.errors import TocsinError, Unavailable

_POLL_SECONDS = 0.5
_LINE_SECONDS = 3.0
_PATIENCE_POLLS = 60
"""Failed polls in a row before following gives up: half a minute of an API that is away."""

DEAD_LETTERS = ("rejected", "exhausted", "ambiguous")
TERMINAL = ("delivered", *DEAD_LETTERS, "cancelled")

Run = Mapping[str, Any]


async def follow(api: Api, run_id: str) -> Run:
    """Poll the run and show how far it is, until it is settled; give back the settled run. A pause of dispatch is told.

    Raises:
        TocsinError: the run failed (the message holds its error) or there is no such run.
        Unavailable: the API stayed away for half a minute.

    """
    still = Standstill(api)
    with _display() as show:
        missed = 0
        while True:
            try:
                run = await api.call("GET", f"/v1/runs/{quote(run_id, safe='')}")
            except Unavailable:
                missed += 1
                if missed >= _PATIENCE_POLLS:
                    raise
            else:
                missed = 0
                show(run)
                if run["settled"]:
                    return run  # type: ignore[no-any-return]
                if run["state"] == "failed":
                    raise TocsinError(_failure(run))
                await still.look()
            await asyncio.sleep(_POLL_SECONDS)


def finished(run: Run) -> int:
    """How many of the run's deliveries are in a terminal state."""
    return sum(int(run["deliveries"][state]) for state in TERMINAL)


def describe(run: Run) -> str:
    """The run in a few words: where it stands and what its deliveries are."""
    counts = run["deliveries"]
    parts = [f"{counts[state]:,} {state}" for state in (*TERMINAL, "leased", "pending") if counts[state]]
    state = "settled" if run["settled"] else str(run["state"])
    held = " (its job is paused: `held` until the job is resumed)" if state == "held" else ""
    return (
        f"{state}{held}: {run['events']:,} events, {counts['total']:,} deliveries"
        + (f" ({', '.join(parts)})" if parts else "")
        + swept(run.get("progress"))
    )


def _failure(run: Run) -> str:
    return f"run {run['id']} failed: {run['error'] or 'no reason is recorded'}"


@contextmanager
def _display() -> Iterator[Callable[[Run], None]]:
    """A function that shows a run: a live bar on a terminal, else one line whenever something changed."""
    if sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _Lines()


@contextmanager
def _bar() -> Iterator[Callable[[Run], None]]:
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
                state="settled" if run["settled"] else plain(run["state"]),
                of=of,
                dead=(f", {dead:,} dead letters" if dead else "") + plain(swept(run.get("progress"))),
            )

        yield show


class _Lines:
    """Prints a run when it has entered another state, and every few seconds in between, for logs and pipes."""

    def __init__(self) -> None:
        self._state = ""
        self._again_at = 0.0

    def __call__(self, run: Run) -> None:
        state = "settled" if run["settled"] else str(run["state"])
        if state != self._state or time.monotonic() >= self._again_at:
            sys.stderr.write(plain(describe(run)) + "\n")
            self._state, self._again_at = state, time.monotonic() + _LINE_SECONDS
