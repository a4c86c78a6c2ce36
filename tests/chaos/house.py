"""The house of a chaos run: PostgreSQL, one API and two workers, all of them real and all of them mortal."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from service.store.vault import new_key
from tests.chaos.cast import CAST, WIDE
from tests.chaos.plan import LEASE_SECONDS, WORKERS
from tests.chaos.processes import Place, environment, free_port
from tests.chaos.receivers import Receivers
from tests.chaos.server import Server

JOB = "chaos"
TICK_SECRET = "a tick secret for chaos, long enough"
API_KEY = "an-admin-key-for-chaos"
_CLOCK_OFF_SECONDS = 3600
_CONFIG = f"""
[jobs."{JOB}"]
source = "sql"
secrets = ["env:CHAOS_TICK_SECRET"]
event_type = "{WIDE}"
page_size = 40
statement = '''
  UPDATE public.things SET found = true
   WHERE number IN (SELECT number FROM public.things WHERE NOT found AND due_at <= :cutoff
                     ORDER BY number LIMIT :limit FOR UPDATE SKIP LOCKED)
  RETURNING 'default' AS tenant_id, subject, number AS version, jsonb_build_object('number', number) AS data
'''
"""
_PATIENCE_SECONDS = 90.0
_PAUSE_SECONDS = 0.1
_NOT_NOW = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that was done to the house, from when until when; `pid` where it was done to one worker."""

    what: str
    began: float
    ended: float
    pid: int | None = None


@dataclass
class House:
    """Everything that runs; `troubles` is what was done to it."""

    folder: Path
    server: Server
    receivers: Receivers
    api: Place
    workers: tuple[Place, ...]
    client: httpx.AsyncClient
    troubles: list[Trouble] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, seed: int) -> AsyncIterator["House"]:
        """Start everything and register the subscribers; leaving kills what still runs."""
        async with Server.running(folder / "data") as server, Receivers(seed).listening() as receivers:
            await server.ask(
                "CREATE TABLE IF NOT EXISTS public.things (number bigint PRIMARY KEY, subject text NOT NULL, "
                "due_at timestamptz NOT NULL DEFAULT now(), found boolean NOT NULL DEFAULT false)"
            )
            api, workers = _places(folder, server.url)
            url = f"http://127.0.0.1:{api.env['TOCSIN_PORT']}"
            headers = {"authorization": f"Bearer {API_KEY}"}
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=10, trust_env=False) as client:
                house = cls(folder, server, receivers, api, workers, client)
                try:
                    for place in (api, *workers):
                        place.open()
                    await asyncio.gather(*(place.up() for place in (api, *workers)))
                    for player in CAST:
                        await house.call("PUT", f"/v1/subscribers/{player.id}", player.body(receivers.urls[player.id]))
                    yield house
                finally:
                    await asyncio.gather(*(place.close() for place in (api, *workers)))

    async def call(self, method: str, path: str, body: object = None, *, patient: bool = True) -> httpx.Response:
        """Ask the API, again and again while it is away; the request has to bear being made twice.

        Raises:
            TimeoutError: it was away for too long, or for a moment where the caller is not `patient`.
            AssertionError: it found fault with the request, or with itself.

        """
        ends = time.monotonic() + (_PATIENCE_SECONDS if patient else 0)
        while True:
            answer: httpx.Response | None = None
            # AttributeError: what httpx's anyio says of a connection that was reset before it had looked at it.
            with suppress(httpx.TransportError, AttributeError):
                answer = await self.client.request(method, path, json=body)
            if answer is not None and answer.status_code not in _NOT_NOW:
                assert answer.status_code < 500, f"{method} {path}: {answer.status_code} {answer.text}"
                return answer
            if time.monotonic() > ends:
                raise TimeoutError(f"{method} {path}: {'nobody answers' if answer is None else answer.status_code}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def items(self, path: str) -> list[dict[str, Any]]:
        """What a list has on its first page; nothing where nobody can tell now."""
        try:
            answer = await self.call("GET", path, patient=False)
        except TimeoutError:
            return []
        found: list[dict[str, Any]] = answer.json()["items"]
        return found


def _places(folder: Path, database_url: str) -> tuple[Place, tuple[Place, ...]]:
    config = folder / "tocsin.toml"
    config.write_text(_CONFIG)
    common = {
        "TOCSIN_DATABASE_URL": database_url,
        "TOCSIN_ENCRYPTION_KEYS": new_key(),
        "TOCSIN_BOOTSTRAP_KEY": API_KEY,
        "TOCSIN_CONFIG": str(config),
        "TOCSIN_EGRESS_ALLOW": "127.0.0.0/8",
        "TOCSIN_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
        "TOCSIN_WORKER_CONCURRENCY": "64",
        "TOCSIN_LOG_FORMAT": "json",
        "CHAOS_TICK_SECRET": TICK_SECRET,
    }
    ports = [str(free_port()) for _ in range(1 + WORKERS)]
    api = Place(("serve",), b"api.listening", environment({**common, "TOCSIN_PORT": ports[0]}), folder)
    return api, tuple(_worker(folder, common, number, port) for number, port in enumerate(ports[1:]))


def _worker(folder: Path, common: dict[str, str], number: int, port: str) -> Place:
    """A worker; the clock of every second one is an hour off."""
    env = {**common, "TOCSIN_PORT": port}
    if number % 2:
        env["CHAOS_CLOCK_OFF"] = str(_CLOCK_OFF_SECONDS)
    return Place(("worker", "--metrics-port", port), b"worker.started", environment(env), folder)
