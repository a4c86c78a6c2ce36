"""pgqueuer at its best, with aiohttp; runs in bench/.peers, where Tocsin's own dependencies are not installed.

The verbs are those of `posting.mjs`: `install`, `work SETTINGS`, `enqueue FILE`.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from service.domain.signing import sign

_SUCCESS = 200
_CONNECTIONS = 64


async def _install() -> None:
    connection = await asyncpg.connect()
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def _work(settings: dict[str, int]) -> None:
    connector = aiohttp.TCPConnector(limit=0, limit_per_host=_CONNECTIONS)
    async with asyncpg.create_pool(max_size=10) as pool, aiohttp.ClientSession(connector=connector) as session:
        queue = PgQueuer(AsyncpgPoolDriver(pool))

        @queue.entrypoint("post")
        async def post(job: Job) -> None:
            await _post(session, json.loads(job.payload or b""))

        print("ready", flush=True)
        await queue.run(batch_size=settings["batch"], max_concurrent_tasks=settings["concurrency"])


async def _post(session: aiohttp.ClientSession, job: dict[str, Any]) -> None:
    timestamp, body = int(time.time()), job["body"].encode()
    headers = {
        "content-type": "application/json",
        "webhook-id": job["id"],
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign((job["subscriber"].to_bytes(32),), job["id"], timestamp, body),
    }
    async with session.post(job["url"], data=body, headers=headers) as answer:
        await answer.read()
        if answer.status != _SUCCESS:
            raise RuntimeError(f"answered {answer.status}")


async def _enqueue(path: Path) -> None:
    jobs = [json.dumps(job).encode() for job in json.loads(path.read_bytes())]
    connection = await asyncpg.connect()
    async with connection.transaction():
        await Queries(AsyncpgDriver(connection)).enqueue(["post"] * len(jobs), jobs, [0] * len(jobs))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    print("done", flush=True)
    await connection.close()


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "install":
        uvloop.run(_install())
    elif verb == "work":
        uvloop.run(_work(json.loads(rest[0])))
    else:
        uvloop.run(_enqueue(Path(rest[0])))
