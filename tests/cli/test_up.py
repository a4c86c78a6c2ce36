"""`tocsin up` as a process: starts, answers, stops in order on a signal, at once on a second one, and starts again."""

import asyncio
import os
import signal
from pathlib import Path

import httpx

from service.store.vault import new_key
from tests.cli.conftest import API_KEY, TICK_SECRET
from tests.cli.process import ROOT, Process, started
from tests.polling import eventually
from tests.receivers import Receiver, answer

KEYS = new_key()


def settings(folder: Path, **changes: str) -> dict[str, str]:
    return {
        "TOCSIN_CONFIG": str(ROOT / "examples/tocsin.toml"),
        "TOCSIN_DATA_DIR": str(folder / "data"),
        "TOCSIN_PORT": "0",
        "TOCSIN_LOG_FORMAT": "json",
        "TOCSIN_EGRESS_ALLOW": "127.0.0.0/8",
        "SHIPMENTS_TICK_SECRET": TICK_SECRET,
        **changes,
    }


async def test_up_with_its_own_database_starts_stops_on_a_signal_and_starts_again(tmp_path: Path) -> None:
    key = ""
    for number, group in ((signal.SIGTERM, False), (signal.SIGINT, True)):
        async with started("up", env=settings(tmp_path), cwd=tmp_path) as process:
            url = await process.url()
            made = (tmp_path / "data/bootstrap.key").read_text()
            assert key in ("", made)
            key = made
            async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
                assert (await client.get("/readyz")).status_code == 200
                listed = await client.get("/v1/runs", headers={"authorization": f"Bearer {key.strip()}"})
                assert listed.json() == {"items": [], "nextCursor": None}
            process.signal(number, group=group)
            assert await process.ended() == 0
            assert any("process.stopped" in line for line in process.err)
            assert not _group_lives(process)
        assert not (tmp_path / "data/postgres/postmaster.pid").exists()


async def test_ctrl_c_while_the_database_is_being_made_is_a_clean_stop_and_the_next_start_works(tmp_path: Path) -> None:
    async with started("up", env=settings(tmp_path), cwd=tmp_path) as process:
        await eventually((tmp_path / "data/postgres.new").exists)
        process.signal(signal.SIGINT, group=True)
        assert await process.ended() == 0
        await eventually(lambda: not _group_lives(process))
    async with started("up", env=settings(tmp_path), cwd=tmp_path) as again:
        await again.url()
        again.signal(signal.SIGINT, group=True)
        assert await again.ended() == 0


async def test_a_second_signal_while_the_database_starts_leaves_no_database_behind(tmp_path: Path) -> None:
    """The signals reach Tocsin alone, as from a supervisor, so that nobody else stops what it has started."""
    async with started("up", env=settings(tmp_path), cwd=tmp_path) as process:
        await eventually((tmp_path / "data/postgres.new").exists)
        process.signal(signal.SIGTERM)
        await process.said("process.stopping")
        one_stroke = asyncio.get_running_loop().time() + 0.4
        await eventually(lambda: asyncio.get_running_loop().time() > one_stroke)
        if process.process.returncode is None:
            process.signal(signal.SIGTERM)
        assert await process.ended() in (0, 1)  # 0 where the start was quicker than the second signal
    assert not any("Traceback" in line for line in process.err)
    assert not (tmp_path / "data/postgres/postmaster.pid").exists()


async def test_a_database_of_its_own_that_is_killed_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    postmaster = tmp_path / "data/postgres/postmaster.pid"
    async with (
        Receiver(answer(200)) as receiver,
        started("up", env=settings(tmp_path), cwd=tmp_path) as process,
        httpx.AsyncClient(base_url=await process.url(), trust_env=False, timeout=15) as client,
    ):
        client.headers["authorization"] = f"Bearer {(tmp_path / 'data/bootstrap.key').read_text().strip()}"
        await publish(client, receiver)
        killed = int(postmaster.read_text().split()[0])
        os.kill(killed, signal.SIGKILL)
        await process.said("embedded_postgres.died")
        await eventually(lambda: ready(client), seconds=30)
        assert int(postmaster.read_text().split()[0]) != killed
        event = {"type": "a.b", "subject": "after", "version": 1, "data": {}}
        assert (await client.post("/v1/events", json=event)).status_code == 201
        await receiver.received(2)
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    assert not any("Traceback" in line for line in process.err)
    assert not postmaster.exists()


async def test_a_worker_refuses_an_older_schema_and_stops_on_a_signal(empty_database_url: str, tmp_path: Path) -> None:
    env = settings(tmp_path, TOCSIN_DATABASE_URL=empty_database_url, TOCSIN_ENCRYPTION_KEYS=KEYS)
    async with started("worker", env=env, cwd=tmp_path) as refused:
        assert await refused.ended() == 1
    assert "tocsin migrate" in refused.err[-1]
    async with started("migrate", env=env, cwd=tmp_path) as migrating:
        assert await migrating.ended() == 0
    async with started("worker", env=env, cwd=tmp_path) as working:
        await working.said("worker.started")
        working.signal(signal.SIGTERM)
        assert await working.ended() == 0


async def publish(client: httpx.AsyncClient, receiver: Receiver) -> None:
    """One event on its way to the receiver, which holds its answer back."""
    body = {"url": f"{receiver.url}/hooks", "eventTypes": ["*"], "timeoutSeconds": 30}
    assert (await client.put("/v1/subscribers/slow", json=body)).status_code == 201
    event = {"type": "a.b", "subject": "s", "version": 1, "data": {}}
    assert (await client.post("/v1/events", json=event)).status_code == 201
    await receiver.received(1)


async def unready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 503


async def ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).status_code == 200


async def delivered(client: httpx.AsyncClient) -> str:
    listed = await client.get("/v1/deliveries")
    return str(listed.json()["items"][0]["state"])


async def test_what_is_in_flight_finishes_while_readiness_says_no_and_the_api_still_answers(
    database_url: str, tmp_path: Path
) -> None:
    env = settings(
        tmp_path, TOCSIN_DATABASE_URL=database_url, TOCSIN_ENCRYPTION_KEYS=KEYS, TOCSIN_BOOTSTRAP_KEY=API_KEY
    )
    release = asyncio.Event()
    async with Receiver(answer(200, hold=release)) as receiver, started("up", env=env, cwd=tmp_path) as process:
        headers = {"authorization": f"Bearer {API_KEY}"}
        async with httpx.AsyncClient(base_url=await process.url(), headers=headers, trust_env=False) as client:
            await publish(client, receiver)
            process.signal(signal.SIGTERM)
            await eventually(lambda: unready(client))
            assert (await client.get("/livez")).status_code == 200
            assert await delivered(client) == "leased"
            release.set()
            assert await process.ended() == 0
        async with started("serve", env=env, cwd=tmp_path) as reading:
            async with httpx.AsyncClient(base_url=await reading.url(), headers=headers, trust_env=False) as client:
                assert await delivered(client) == "delivered"
            reading.signal(signal.SIGTERM)
            assert await reading.ended() == 0
    assert len(receiver.requests) == 1


async def test_a_second_signal_stops_at_once(database_url: str, tmp_path: Path) -> None:
    env = settings(
        tmp_path, TOCSIN_DATABASE_URL=database_url, TOCSIN_ENCRYPTION_KEYS=KEYS, TOCSIN_BOOTSTRAP_KEY=API_KEY
    )
    async with Receiver(answer(200, hold=asyncio.Event())) as receiver, started("up", env=env, cwd=tmp_path) as process:
        headers = {"authorization": f"Bearer {API_KEY}"}
        async with httpx.AsyncClient(base_url=await process.url(), headers=headers, trust_env=False) as client:
            await publish(client, receiver)
        process.signal(signal.SIGINT)
        await process.said("process.stopping")
        one_stroke = asyncio.get_running_loop().time() + 0.5
        await eventually(lambda: asyncio.get_running_loop().time() > one_stroke)
        process.signal(signal.SIGINT)
        assert await process.ended() == 1
    assert process.err[-1].startswith("tocsin: stopped at once")


def _group_lives(process: Process) -> bool:
    try:
        os.killpg(process.process.pid, 0)
    except ProcessLookupError:
        return False
    return True
