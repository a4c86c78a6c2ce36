"""The backlog by command, and the metrics of a worker that has no API."""

import json
import re
import socket
from pathlib import Path

import httpx

from tests.cli import inside
from tests.cli.conftest import Live
from tests.cli.process import started
from tests.polling import eventually


async def test_the_backlog_is_told_to_people_and_to_programs(live: Live) -> None:
    told = await inside.call("backlog", env=live.env)
    raw = await inside.call("backlog", "--json", env=live.env)
    assert (told.code, raw.code) == (0, 0), told.err + raw.err
    assert "headroom" in told.out
    assert set(json.loads(raw.out)) >= {"due", "leased", "scheduled", "held", "drainEtaSeconds", "lanes"}


async def test_a_process_with_api_and_worker_tells_each_metric_once(live: Live) -> None:
    async with httpx.AsyncClient(base_url=live.url) as client:
        text = (await client.get("/metrics")).text
    families = re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)
    assert len(families) == len(set(families))
    assert {"tocsin_database_up", "tocsin_worker_saturation_ratio", "tocsin_attempts_total"} <= set(families)


async def test_a_worker_serves_its_own_metrics_where_it_is_asked_to(live: Live, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = live.env | {"TOCSIN_HOST": "127.0.0.1", "TOCSIN_DATA_DIR": str(tmp_path)}
    async with started("worker", "--metrics-port", str(port), env=env, cwd=tmp_path) as worker:
        line = json.loads(await worker.said("worker.started"))
        async with httpx.AsyncClient(base_url=line["metrics"]) as client:
            assert (await client.get("/livez")).json() == {"status": "ok"}
            assert (await client.get("/v1/backlog")).status_code == 404

            async def beats() -> bool:
                text = (await client.get("/metrics")).text
                assert "tocsin_database_up" not in text
                return "tocsin_scan_heartbeat_timestamp_seconds 1." in text and "tocsin_worker_inflight 0.0" in text

            await eventually(beats)
    async with started("worker", "--metrics-port", live.url.rpartition(":")[2], env=env, cwd=tmp_path) as taken:
        assert await taken.ended() == 1
        assert "--metrics-port" in taken.err[-1]
