"""What is done to the processes of a chaos run, one blow after another, each while something is under way."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.chaos.house import House, Trouble
from tests.chaos.plan import Blow, Step
from tests.chaos.processes import Place

_BUSY_SECONDS = 2.0
"""How long a blow waits for a request to be under way."""
_LOOK_SECONDS = 0.01
_CROWD = 100
_TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tocsin'"

Say = Callable[[str], None]


class Blows:
    """Deals out blows; what was stopped goes on by itself."""

    def __init__(self, house: House, say: Say) -> None:
        self._house = house
        self._say = say
        self._thaws: set[asyncio.Task[None]] = set()
        self._hands: Mapping[Blow, Callable[[Step], Awaitable[None]]] = {
            Blow.WORKER_KILL: self._kill_worker,
            Blow.WORKER_STOP: self._stop_worker,
            Blow.API_KILL: self._kill_api,
            Blow.API_STOP: self._stop_api,
            Blow.POSTGRES_KILL: self._kill_postgres,
            Blow.TERMINATE: self._terminate,
            Blow.READ_ONLY: self._read_only,
            Blow.CROWD: self._crowd,
            Blow.STALL: self._stall,
        }

    async def deal(self, steps: Sequence[Step], allow: Callable[[float], None]) -> None:
        """All of them, in their order; before each so much traffic is allowed that some is left for the last."""
        for number, step in enumerate(steps, 1):
            allow(number / len(steps))
            await asyncio.sleep(step.after)
            await self._busy()
            self._say(f"{number}/{len(steps)} {step.blow}")
            await self._hands[step.blow](step)
        await asyncio.gather(*self._thaws)

    async def _busy(self) -> None:
        ends = time.monotonic() + _BUSY_SECONDS
        while self._house.receivers.open == 0 and time.monotonic() < ends:  # noqa: ASYNC110 - bounded
            await asyncio.sleep(_LOOK_SECONDS)

    def _note(self, step: Step, began: float, pid: int | None = None) -> None:
        self._house.troubles.append(Trouble(step.blow.value, began, time.time(), pid))

    async def _kill_worker(self, step: Step) -> None:
        await self._kill(self._house.workers[step.worker], step)

    async def _kill_api(self, step: Step) -> None:
        await self._kill(self._house.api, step)

    async def _kill(self, place: Place, step: Step) -> None:
        """SIGKILL: no handler, no drain, no last words; a stopped one dies as well."""
        pid = await place.up()
        await self._busy()
        began = time.time()
        place.signal(signal.SIGKILL, pid)
        self._note(step, began, pid)

    async def _stop_worker(self, step: Step) -> None:
        await self._freeze(self._house.workers[step.worker], step)

    async def _stop_api(self, step: Step) -> None:
        await self._freeze(self._house.api, step)

    async def _freeze(self, place: Place, step: Step) -> None:
        pid = await place.up()
        place.signal(signal.SIGSTOP, pid)
        thaw = asyncio.create_task(self._thaw(place, step, time.time(), pid))
        self._thaws.add(thaw)

    async def _thaw(self, place: Place, step: Step, began: float, pid: int) -> None:
        await asyncio.sleep(step.seconds)
        place.signal(signal.SIGCONT, pid)
        self._note(step, began, pid)

    async def _kill_postgres(self, step: Step) -> None:
        began = time.time()
        self._house.server.kill()
        await asyncio.sleep(step.seconds)
        await self._house.server.revive()
        self._note(step, began)

    async def _terminate(self, step: Step) -> None:
        began = time.time()
        await self._house.server.ask(_TERMINATE)
        self._note(step, began)

    async def _read_only(self, step: Step) -> None:
        """As a failover leaves it: the server answers, and takes nothing."""
        began = time.time()
        await self._house.server.ask("ALTER SYSTEM SET default_transaction_read_only = on")
        await self._house.server.ask("SELECT pg_reload_conf()")
        await asyncio.sleep(step.seconds)
        await self._house.server.ask("ALTER SYSTEM RESET default_transaction_read_only")
        await self._house.server.ask("SELECT pg_reload_conf()")
        self._note(step, began)

    async def _crowd(self, step: Step) -> None:
        """Take every slot that is free, have the others vacated, and take most of those as well."""
        began = time.time()
        async with contextlib.AsyncExitStack() as stack:
            first = await self._connections(stack, _CROWD)
            if first:
                await first[0].execute(text(_TERMINATE))
            await self._connections(stack, _CROWD)
            await asyncio.sleep(step.seconds)
        self._note(step, began)

    async def _connections(self, stack: contextlib.AsyncExitStack, most: int) -> list[AsyncConnection]:
        """As many connections as are to be had."""
        had: list[AsyncConnection] = []
        with contextlib.suppress(SQLAlchemyError, OSError, TimeoutError):
            while len(had) < most:
                had.append(await stack.enter_async_context(self._house.server.connected()))
        return had

    async def _stall(self, step: Step) -> None:
        """A lock on the deliveries stands in for a disk that takes its time."""
        began = time.time()
        lock = (
            "DO $$ BEGIN SET LOCAL lock_timeout = '5s'; LOCK TABLE tocsin.deliveries IN ACCESS EXCLUSIVE MODE; "
            f"PERFORM pg_sleep({step.seconds}); EXCEPTION WHEN lock_not_available THEN NULL; END $$"
        )
        await self._house.server.ask(lock)
        self._note(step, began)
