"""Follows a bulk replay until it has ended, with a bar on a terminal and a line per change elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from service.cli.api import Api
from service.cli.following import Look, Show, Thing, followed
from service.cli.output import console, plain

Replay = Thing


async def follow(api: Api, replay_id: str) -> Replay:
    """Poll the replay and show how far it is, until it is completed or cancelled; give back how it ended.

    Raises:
        TocsinError: there is no such replay.
        Unavailable: the API stayed away for half a minute.

    """
    look = Look(_bar, describe, lambda replay: str(replay["state"]))
    return await followed(api, f"/v1/replays/{quote(replay_id, safe='')}", look, _over)


async def _over(replay: Replay) -> bool:
    return bool(replay["state"] != "running")


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
def _bar() -> Iterator[Show]:
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
