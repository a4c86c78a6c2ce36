"""`tocsin demo`: the whole path alive on this machine, in about half a minute."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer

from service import logs
from service.cli.api import Api
from service.cli.demo_cast import Member, Seen, receivers, register
from service.cli.demo_report import collect, how_to_go_on, show
from service.cli.demo_stage import DUE, JOB, NOT_YET, add_shipments, listen_near, stage, stage_settings, write_header
from service.cli.lifecycle import Parts, address, run_process, running
from service.cli.options import command_app
from service.cli.output import console
from service.cli.progress import follow
from service.cli.tick import post_tick
from service.domain.errors import TocsinError
from service.domain.signing import tick_signature
from service.runtime import Runtime, open_runtime

app = command_app()


@app.command()
def demo(
    leave: Annotated[
        bool,
        typer.Option("--exit", envvar="TOCSIN_DEMO_EXIT", help="End when the run is settled, in place of staying up."),
    ] = False,
) -> None:
    """Show the whole path, alive, with 25 receivers of which some misbehave.

    One signed tick expires 200 shipments; a table tells what became of their 5,000 deliveries, and why.

    Everything it writes is under TOCSIN_DATA_DIR/demo, its PostgreSQL too; a database that is set for a real Tocsin is
    left alone. It listens on TOCSIN_PORT or the next free port. Ctrl-C stops all of it.
    """
    run_process(partial(_demo, leave=leave))


async def _demo(stop: asyncio.Event, *, leave: bool) -> None:
    settings = stage_settings()
    seen = Seen()
    logs.configure("console", level=logging.WARNING)  # what is changed on this machine for PostgreSQL is told
    with stage(settings) as secret, listen_near(settings.host, settings.port) as bound:
        _say("Starting a PostgreSQL, the API, a worker and 25 receivers …")
        async with (
            receivers(secret, seen) as members,
            open_runtime(settings, migrate=True) as runtime,
            running(runtime, bound=bound, work=False) as api,
        ):
            logs.configure("console", level=logging.ERROR)  # the screen is the demo's; the rest is in the database
            scene = _Scene(runtime, address(bound), secret, members, seen, leave=leave)
            # No worker yet: what an earlier demo left over would go to ports that now belong to other receivers.
            if await _played(scene.register(), api, stop):
                await _work(scene, runtime, api, stop, leave=leave)
            _say("Stopping …")
    _say("Stopped.")
    if seen.faults:
        raise TocsinError(f"{seen.faults:,} signatures were wrong.")


async def _work(scene: "_Scene", runtime: Runtime, api: Parts, stop: asyncio.Event, *, leave: bool) -> None:
    async with running(runtime, bound=None, work=True) as worker:
        parts = Parts((*api.tasks, *worker.tasks))
        if await _played(scene.play(), parts, stop) and not leave:
            _say("\nTocsin stays up; Ctrl-C stops it.")
            await parts.until(stop)


async def _played(act: Coroutine[Any, Any, None], parts: Parts, stop: asyncio.Event) -> bool:
    """Play an act; False where the signal to stop came first. What breaks is raised."""
    playing = asyncio.create_task(act)
    watching = asyncio.create_task(parts.until(stop))
    try:
        await asyncio.wait([playing, watching], return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
            return False
        playing.result()
        return True
    finally:
        for task in (playing, watching):
            task.cancel()
        await asyncio.gather(playing, watching, return_exceptions=True)


class _Scene:
    """From registering the subscribers to the table of what happened, all of it through the public doors."""

    def __init__(
        self, runtime: Runtime, url: str, secret: bytes, members: list[Member], seen: Seen, *, leave: bool
    ) -> None:
        self._runtime = runtime
        self._url = url
        self._secret = secret
        self._members = members
        self._seen = seen
        self._leave = leave

    def _api(self) -> Api:
        key = self._runtime.settings.bootstrap_key
        return Api(self._url, key.get_secret_value() if key else None)

    async def register(self) -> None:
        """Register the subscribers, and say what a demo that was killed has left behind."""
        async with self._api() as api:
            await register(api, self._members)
            _say(f"25 subscribers are registered at {self._url}.")
            if await api.items("/v1/deliveries", 1, {"state": "leased"}):
                seconds = self._runtime.settings.lease_seconds
                _say(f"An earlier demo was killed: waiting for a dead worker's leases (up to {seconds:g} s).")

    async def play(self) -> None:
        """Ring twice, follow, tell."""
        async with self._api() as api:
            cutoff = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            overdue = await add_shipments(self._runtime.db, f"ship-{cutoff}")
            _say(f"{DUE + NOT_YET} new shipments are in the database; {overdue} are overdue.")
            run_id = await self._ring_twice(api, cutoff)
            begun = time.monotonic()
            run = await follow(api, run_id)
            _say(
                f"settled: {run['events']:,} events, {run['deliveries']['total']:,} deliveries, "
                f"in {time.monotonic() - begun:.0f} seconds.\n"
            )
            await self._tell(api, run_id)

    async def _ring_twice(self, api: Api, cutoff: str) -> str:
        name = f"demo-{cutoff}"
        tick = {"runId": name, "cutoffIso": cutoff, "signature": tick_signature(self._secret, name, cutoff)}
        first = await post_tick(api, JOB, tick, retries=0)
        _say(f"A signed tick for {JOB}: accepted, run {first['run']['id']}.")
        second = await post_tick(api, JOB, tick, retries=0)
        same = "the same run" if second["run"]["id"] == first["run"]["id"] else "ANOTHER RUN"
        _say(f"The same tick again: duplicate: {str(second['duplicate']).lower()}, {same}.\n")
        return str(first["run"]["id"])

    async def _tell(self, api: Api, run_id: str) -> None:
        lines = await collect(api, run_id)
        show(lines, self._seen)
        if self._leave:
            return
        write_header(self._runtime.settings)
        _say("\nTo go on, in another terminal:\n")
        for line in how_to_go_on(self._runtime.settings, self._url, run_id, lines):
            _say(f"  {line}".rstrip())


def _say(text: str) -> None:
    console().print(text, soft_wrap=True)
