"""Runs the API and a worker in one process and stops them in order: readiness, worker, API, database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from signal import SIGINT, SIGTERM
from socket import AI_PASSIVE, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, getaddrinfo, socket
from typing import Any

import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp

from service.domain.errors import ConfigurationError, TocsinError, Unavailable
from service.runtime import Runtime, open_runtime
from service.settings import Settings
from service.web.app import create_app
from service.web.connections import Door
from service.web.state import state_of
from service.web.worker_metrics import worker_app

log = structlog.get_logger()

_GRACE_SECONDS = 5
"""How long the API waits for answers that are under way; ticks and reads take milliseconds."""

_BACKLOG = 2048
_METRICS_PORT = "--metrics-port"

_ONE_STROKE_SECONDS = 0.3
"""One Ctrl-C may arrive twice, from the terminal and from a wrapper that passes it on; both together are one."""

Main = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Parts:
    """What runs in this process: tasks that end only when they are told to, or when they break."""

    tasks: tuple[asyncio.Task[None], ...]

    async def until(self, stop: asyncio.Event) -> None:
        """Wait for the signal to stop; whatever breaks a part before is raised here."""
        waiting = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([waiting, *self.tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        for task in self.tasks:
            if task.done():
                task.result()


async def api_process(stop: asyncio.Event, *, settings: Settings, migrate: bool, work: bool) -> None:
    """Serve the API until `stop`, with `work` beside a worker."""
    with listen(settings.host, settings.port) as bound:
        async with (
            open_runtime(settings, migrate=migrate) as runtime,
            running(runtime, bound=bound, work=work) as parts,
        ):
            log.info("api.listening", url=address(bound), jobs=sorted(runtime.jobs), worker=work)
            await parts.until(stop)
    log.info("process.stopped")


async def worker_process(stop: asyncio.Event, *, settings: Settings, metrics_port: int = 0) -> None:
    """Work until `stop`; with a port the worker's own metrics are served beside."""
    with listen(settings.host, metrics_port, _METRICS_PORT) if metrics_port else nullcontext() as bound:
        async with open_runtime(settings) as runtime, running(runtime, bound=bound, work=True, api=False) as parts:
            log.info("worker.started", jobs=sorted(runtime.jobs), metrics=address(bound) if bound else None)
            await parts.until(stop)
    log.info("process.stopped")


@asynccontextmanager
async def running(runtime: Runtime, *, bound: socket | None, work: bool, api: bool = True) -> AsyncIterator[Parts]:
    """Run the API on a bound socket and, with `work`, a worker; leaving stops them in order, an error at once.

    Without `api` nothing but the worker's metrics is served on the socket.
    """
    door = None if bound is None else _Api(runtime, bound) if api else _Metrics(runtime, bound)
    worker = _Work(runtime) if work else None
    tasks = tuple(part.task for part in (worker, door) if part is not None)
    try:
        yield Parts(tasks)
        if door is not None:
            door.withdraw()
        if worker is not None:
            await worker.finish()
        if door is not None:
            await door.finish()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Work:
    """The worker of this process."""

    def __init__(self, runtime: Runtime) -> None:
        self._enough = asyncio.Event()
        self.task = asyncio.create_task(runtime.worker().run(self._enough))

    async def finish(self) -> None:
        """Let it claim no more and finish what is in flight, as far as TOCSIN_DRAIN_SECONDS allow."""
        self._enough.set()
        await self.task


class _Served:
    """What this process answers on a socket."""

    def __init__(self, app: ASGIApp, bound: socket) -> None:
        bound.listen(_BACKLOG)  # now, so that whoever was told the address can connect; uvicorn takes it from there
        self._server = _Server(Door(app, grace_seconds=_GRACE_SECONDS))
        self.task = asyncio.create_task(self._server.serve(sockets=[bound]))

    def withdraw(self) -> None:
        """Say that no more traffic is wanted, and go on answering."""

    async def finish(self) -> None:
        """Take no more connections and finish the answers that are under way."""
        self._server.should_exit = True
        await self.task


class _Api(_Served):
    """The API of this process."""

    def __init__(self, runtime: Runtime, bound: socket) -> None:
        app = create_app(runtime)
        self._state = state_of(app)
        super().__init__(app, bound)

    def withdraw(self) -> None:
        """Say that no more traffic is wanted, and go on answering."""
        self._state.draining = True


class _Metrics(_Served):
    """The metrics of a process that has no API."""

    def __init__(self, runtime: Runtime, bound: socket) -> None:
        super().__init__(worker_app(runtime.counters), bound)


class _Server(uvicorn.Server):
    """Uvicorn that leaves the signals to this process, which has a worker and a database to stop as well."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def listen(host: str, port: int, chosen_by: str = "TOCSIN_PORT") -> socket:
    """A bound socket; `chosen_by` names what chooses the port.

    Raises:
        ConfigurationError: the address is taken or not this machine's; the message names the settings.

    """
    try:
        family, kind, protocol, _, where = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)[0]
        bound = socket(family, kind, protocol)
        try:
            bound.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            bound.bind(where)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another with TOCSIN_HOST or {chosen_by}."
        ) from None
    return bound


def address(bound: socket) -> str:
    """The URL under which a socket answers; one that stands for every address is shown as loopback."""
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared with, not bound to
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_process(main: Main) -> None:
    """Run `main` in a fast loop; the first SIGTERM or Ctrl-C sets its event, the second stops it at once.

    Raises:
        TocsinError: it was stopped at once.

    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_with_signals(main))
        except asyncio.CancelledError:
            raise TocsinError(
                "stopped at once; what was in flight is taken up again when its lease has run out."
            ) from None


async def _with_signals(main: Main) -> None:
    stop = asyncio.Event()
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    patience_ends = 0.0

    def on_signal() -> None:
        nonlocal patience_ends
        if not stop.is_set():
            log.info("process.stopping", effect="what is in flight finishes; a second signal stops at once")
            stop.set()
            patience_ends = loop.time() + _ONE_STROKE_SECONDS
        elif task is not None and loop.time() > patience_ends:
            task.cancel()

    for number in (SIGINT, SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        await main(stop)
    except (ConfigurationError, Unavailable) as refusal:
        # A terminal's Ctrl-C also reaches initdb, which then fails: the end that was asked for, and no fault.
        if not stop.is_set():
            raise
        log.info("process.stopped", before="it was up", because=refusal.detail)
