"""Follows a bulk replay until it has ended, with a bar on a terminal and a line per change elsewhere."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from service.cli.api import Api
from service.cli.output import console, plain
from service.domain.errors import Unavailable

_POLL_SECONDS = 0.5
_LINE_SECONDS = 3.0
_PATIENCE_POLLS = 60
"""Failed polls in a row before following gives up: half a minute of an API that is away."""

Replay = Mapping[str, Any]


async def follow(api: Api, replay_id: str) -> Replay:
    """Poll the replay and show how far it is, until it is completed or cancelled; give back how it ended.

    Raises:
        TocsinError: there is no such replay.
        Unavailable: the API stayed away for half a minute.

    """
    missed = 0
    with _display() as show:
        while True:
            try:
                replay: Replay = await api.call("GET", f"/v1/replays/{quote(replay_id, safe='')}")
            except Unavailable:
                missed += 1
                if missed >= _PATIENCE_POLLS:
                    raise
            else:
                missed = 0
                show(replay)
                if replay["state"] != "running":
                    return replay
            await asyncio.sleep(_POLL_SECONDS)


def passed(replay: Replay) -> int:
    """How many of the matched ones it is through with."""
    return int(replay["replayed"]) + sum(int(count) for count in replay["skipped"].values())


def describe(replay: Replay) -> str:
    """The replay in a few words: where it stands and what it has done.

    What is released is a new generation on its way, and need not have arrived.
    """
    if not replay["matched"]:
        verdict = "nothing would be replayed" if replay["state"] == "dry-run" else "nothing was replayed"
        return f"{replay['state']}: nothing matches: {verdict}"
    left_out = {"payloadPurged": "without payload", "subscriberDeleted": "to nobody"}
    left_out |= {"tenantChanged": "to another tenant", "changed": "changed meanwhile"}
    parts = [f"{n:,} {why}" for name, why in left_out.items() if (n := replay["skipped"].get(name))]
    eta = f", {replay['etaSeconds']:,.0f} s at {replay['ratePerSecond']:g}/s" if replay["etaSeconds"] else ""
    skipped = f" (skipped: {', '.join(parts)})" if parts else ""
    if replay["state"] == "dry-run":
        going = replay["matched"] - passed(replay)
        return f"dry-run: {replay['matched']:,} match, {going:,} would be released{skipped}{eta}"
    over = replay["replayed"] and replay["state"] != "running"
    then = "; `tocsin deliveries` says what came of them" if over else ""
    return f"{replay['state']}: {replay['matched']:,} match, {replay['replayed']:,} released{skipped}{eta}{then}"


def announce(replay: Replay) -> None:
    """Say which replay is followed, so that it can be found again whatever becomes of this terminal."""
    sys.stderr.write(f"Bulk replay {replay['id']}: {plain(describe(replay))}\n")


@contextmanager
def _display() -> Iterator[Callable[[Replay], None]]:
    """A function that shows a replay: a live bar on a terminal, else one line whenever something changed."""
    if sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _Lines()


@contextmanager
def _bar() -> Iterator[Callable[[Replay], None]]:
    columns = (
        TextColumn("{task.fields[state]:<9}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(stderr=True)) as progress:
        task = progress.add_task("", total=0, state="running")

        def show(replay: Replay) -> None:
            progress.update(task, total=replay["matched"], completed=passed(replay), state=plain(replay["state"]))

        yield show


class _Lines:
    """Prints a replay when it has entered another state, and every few seconds in between, for logs and pipes."""

    def __init__(self) -> None:
        self._state = ""
        self._again_at = 0.0

    def __call__(self, replay: Replay) -> None:
        if replay["state"] != self._state or time.monotonic() >= self._again_at:
            sys.stderr.write(plain(describe(replay)) + "\n")
            self._state, self._again_at = str(replay["state"]), time.monotonic() + _LINE_SECONDS
