"""The drill's outage: the embedded PostgreSQL of this machine dies while answers are on their way, for 20 seconds."""

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from service.cli.api import NobodyAnswers
from service.cli.drill_evidence import Check, Delivery, NotRun, both_sides, check
from service.cli.drill_stage import REASON, Scene, Target
from service.domain.errors import TocsinError, Unavailable
from service.postgres_signs import is_postgres
from service.runtime import database_url
from service.settings import Settings
from service.store import subscribers
from service.store.database import Database

_GONE_SECONDS = 20.0
_LOOK_SECONDS = 1.0
_FLOCK = 5
_REVIVAL_SECONDS = 120.0


async def database_gone(settings: Settings, scene: Scene) -> list[Check]:
    """SIGQUIT the embedded PostgreSQL when a receiver has a request, and keep it down."""
    target = await _waiting_flock(scene, _FLOCK)
    server = await _own_server(settings, target)
    died = asyncio.Event()
    with _held_down(settings.data_dir):
        target.receiver.then = partial(_kill, server, died)
        await _resume_once(scene, target)
        await asyncio.wait_for(died.wait(), scene.stage.patience)
        scene.note(
            f"SIGQUIT to PostgreSQL ({server}) while a request is under way; it stays away {_GONE_SECONDS:.0f} s"
        )
        alive, refused = await _meanwhile(scene)
    scene.note("PostgreSQL may come back")
    await _back(scene)
    await scene.steer(target, "resume")
    await scene.stage.call("POST", "/v1/events", scene.event(_FLOCK + 1))
    done = await scene.settled(target, _FLOCK + 1, more=_REVIVAL_SECONDS)
    answered = f"{alive} answers of /livez, {refused} of 503 to a publisher"
    return [
        Check("the API lived on and said 503, so that callers try again", alive > 0 and refused > 0, (answered,)),
        check("all were delivered, also what was refused meanwhile", _delivered(done), *done),
        *both_sides(target.requests, done),
    ]


def _delivered(done: Sequence[Delivery]) -> bool:
    return all(each["state"] == "delivered" for each in done)


async def _meanwhile(scene: Scene) -> tuple[int, int]:
    """How often the API said that it lives, and 503 to a publisher, while the database was away."""
    alive = refused = 0
    ends = time.monotonic() + _GONE_SECONDS
    while time.monotonic() < ends:
        try:
            await scene.stage.api.call("GET", "/livez")
            alive += 1
            await scene.stage.api.call("POST", "/v1/events", body=scene.event(_FLOCK + 1))
        except NobodyAnswers:
            pass
        except Unavailable:
            refused += 1
        await asyncio.sleep(_LOOK_SECONDS)
    return alive, refused


async def _waiting_flock(scene: Scene, count: int) -> Target:
    """A target for which so many deliveries wait behind a pause."""
    target = await scene.subscriber("200")
    await scene.steer(target, "pause")
    await scene.publish(count)
    await scene.until(target, f"{count} deliveries wait", lambda found: len(found) == count)
    return target


async def _resume_once(scene: Scene, target: Target) -> None:
    """Let a target go on; what follows at once may take the answer away, so it is not asked for again here."""
    try:
        await scene.stage.api.call("POST", f"/v1/subscribers/{target.id}/resume", body={"reason": REASON})
    except Unavailable:
        scene.note("no answer to the resume: the database was gone by then")


async def _back(scene: Scene) -> None:
    """Wait until the API is ready again, longer than patience: a database that died replays its log first."""
    ends = time.monotonic() + _REVIVAL_SECONDS
    while True:
        try:
            await scene.stage.api.call("GET", "/readyz")
        except Unavailable:
            if time.monotonic() >= ends:
                raise
            await asyncio.sleep(_LOOK_SECONDS)
        else:
            scene.note("the API is ready again")
            return


async def _own_server(settings: Settings, target: Target) -> int:
    """The process of the embedded server under TOCSIN_DATA_DIR, if it is the one that the API uses.

    Raises:
        NotRun: it is not, or there is none here.

    """
    if settings.database_url is not None:
        raise NotRun("only the embedded PostgreSQL is stopped: TOCSIN_DATABASE_URL names another; rehearse with `up`")
    server = _postmaster(settings.data_dir)
    if server is None:
        raise NotRun(f"no embedded PostgreSQL runs in {settings.data_dir}: set TOCSIN_DATA_DIR as for `tocsin up`")
    async with database_url(settings) as url:
        db = Database(url, pool_size=1)
        try:
            async with db.begin() as tx:
                known = await subscribers.read(tx, target.id)
        except TocsinError as refusal:
            raise NotRun(f"the embedded PostgreSQL cannot be asked ({refusal.detail})") from None
        finally:
            await db.close()
    if known is None:
        raise NotRun(f"the PostgreSQL in {settings.data_dir} is not the one of this Tocsin: set its TOCSIN_DATA_DIR")
    return server


def _postmaster(data_dir: Path) -> int | None:
    """The process id of the server whose files these are, if it lives."""
    try:
        pid = int((data_dir.expanduser() / "postgres" / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None
    return pid if is_postgres(pid) else None


@contextmanager
def _held_down(data_dir: Path) -> Iterator[None]:
    """While this lasts nobody starts the embedded server: its processes take turns by this lock.

    Raises:
        NotRun: the lock cannot be had.

    """
    try:
        lock = os.open(data_dir.expanduser() / "postgres.lock", os.O_RDWR)
    except OSError as error:
        raise NotRun(f"the lock of the embedded PostgreSQL cannot be opened ({error.strerror})") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise NotRun("the embedded PostgreSQL is being started or stopped: try again") from None
    finally:
        os.close(lock)


def _kill(server: int, died: asyncio.Event) -> None:
    """End the server at once, as a crash does; a request is under way in this moment."""
    os.kill(server, signal.SIGQUIT)
    died.set()
