"""The recipe of pg_cron, run by a real PostgreSQL; what pg_net would post is posted to a real service.

Its three extensions are not here. In their place stand functions of the same names and arguments: `hmac` works as
pgcrypto's does, the others only note what they are asked for.
"""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import httpx
import pytest
import pytest_asyncio
from sqlalchemy import make_url

from service.domain.signing import tick_signature
from tests.cli.conftest import TICK_SECRET, Live
from tests.examples.recipes import JOB, is_signed, page

EXTENSIONS = """
CREATE SCHEMA cron;
CREATE TABLE cron.job (jobname text PRIMARY KEY, schedule text, command text);
CREATE FUNCTION cron.schedule(job_name text, schedule text, command text) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO cron.job VALUES (job_name, schedule, command)
    ON CONFLICT (jobname) DO UPDATE SET schedule = excluded.schedule, command = excluded.command RETURNING 1::bigint
$$;

CREATE SCHEMA net;
CREATE TABLE net.requests (id bigserial, url text, body jsonb, params jsonb, headers jsonb, timeout integer);
CREATE TABLE net._http_response (
    id bigint, status_code integer, content_type text, headers jsonb, content text, timed_out boolean, error_msg text,
    created timestamptz NOT NULL DEFAULT now()
);
CREATE FUNCTION net.http_post(
    url text, body jsonb DEFAULT '{}', params jsonb DEFAULT '{}',
    headers jsonb DEFAULT '{"Content-Type": "application/json"}', timeout_milliseconds integer DEFAULT 5000
) RETURNS bigint LANGUAGE sql STRICT AS $$
    INSERT INTO net.requests (url, body, params, headers, timeout)
    VALUES (url, body, params, headers, timeout_milliseconds) RETURNING id
$$;

CREATE FUNCTION xor_pad(key bytea, mask integer) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    pad bytea := decode(repeat('00', 64), 'hex');
BEGIN
    IF length(key) > 64 THEN
        key := sha256(key);
    END IF;
    FOR at IN 0..63 LOOP
        pad := set_byte(pad, at, mask # CASE WHEN at < length(key) THEN get_byte(key, at) ELSE 0 END);
    END LOOP;
    RETURN pad;
END
$$;
CREATE FUNCTION hmac(data bytea, key bytea, type text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE type WHEN 'sha256' THEN sha256(xor_pad(key, 92) || sha256(xor_pad(key, 54) || data)) END
$$;
"""
RECIPE = re.sub(r"^CREATE EXTENSION .*$", "", page("pg-cron/tick.sql"), flags=re.MULTILINE)

Connection = Any


@pytest_asyncio.fixture
async def cron(empty_database_url: str, live: Live) -> AsyncIterator[Connection]:
    """A connection to a database with the recipe, which rings the live service."""
    url = make_url(empty_database_url)
    connection = await asyncpg.connect(
        host=url.query.get("host") or url.host,
        port=url.port,
        user=url.username,
        password=url.password,
        database=url.database,
    )
    await connection.execute(EXTENSIONS)
    await connection.execute(RECIPE)
    await connection.execute("INSERT INTO ticking.jobs VALUES ($1, $2, $3)", JOB, f"{live.url}/", TICK_SECRET)
    yield connection
    await connection.close()


async def ring(cron: Connection) -> None:
    await cron.execute("SELECT ticking.ring($1)", JOB)


async def last_request(cron: Connection) -> Any:
    return await cron.fetchrow("SELECT * FROM net.requests ORDER BY id DESC LIMIT 1")


async def respond(cron: Connection, status: int | None, content: str | None = None, error: str | None = None) -> None:
    """An answer to the last request, as pg_net keeps it."""
    request = await last_request(cron)
    await cron.execute(
        "INSERT INTO net._http_response (id, status_code, content, error_msg) VALUES ($1, $2, $3, $4)",
        *(request["id"], status, content, error),
    )


async def posted(cron: Connection) -> httpx.Response:
    """Post the last request as pg_net does, and keep the answer."""
    request = await last_request(cron)
    async with httpx.AsyncClient() as client:
        got = await client.post(request["url"], content=request["body"], headers=json.loads(request["headers"]))
    await respond(cron, got.status_code, got.text)
    return got


async def test_what_is_scheduled_is_what_the_database_can_run(cron: Connection) -> None:
    await cron.execute(RECIPE)  # again, as after a change
    jobs = {row["jobname"]: row for row in await cron.fetch("SELECT * FROM cron.job")}
    assert jobs["shipments-tick"]["schedule"] == "0 2 * * *"
    for job in jobs.values():
        await cron.execute(job["command"])
    assert (await last_request(cron))["url"].endswith(f"/v1/jobs/{JOB}/ticks")


async def test_a_slot_is_signed_claimed_and_noted_and_again_it_is_a_duplicate(cron: Connection) -> None:
    await ring(cron)
    first, second = [await posted(cron) for _ in range(2)]
    assert (first.status_code, second.status_code) in {(202, 200), (200, 200)}
    assert second.json()["duplicate"]
    await cron.execute("CALL ticking.follow()")
    slot = await cron.fetchrow("SELECT * FROM ticking.slots")
    assert (slot["taken"], slot["tries"]) == (True, 1)
    assert second.json()["run"]["runId"] == slot["run_id"] == f"{JOB}@{slot['cutoff']}"


async def test_one_minute_is_one_slot(cron: Connection) -> None:
    async with cron.transaction():
        await ring(cron)
        await ring(cron)
    assert await cron.fetchval("SELECT count(*) FROM net.requests") == 1


@pytest.mark.parametrize("secret", ["x" * 64, "x" * 65, "schlüssel und \\ Striche '\""])
async def test_any_secret_signs_as_the_api_reads_it(cron: Connection, secret: str) -> None:
    await cron.execute("UPDATE ticking.jobs SET secret = $1", secret)
    await ring(cron)
    assert is_signed((await last_request(cron))["body"].encode(), secret.encode())


async def test_what_says_not_now_is_posted_again_with_the_same_run_and_given_up_in_the_end(cron: Connection) -> None:
    await ring(cron)
    refusals = ((503, "away", None), (429, None, None), (None, None, "Couldn't connect to server"), (500, "", None))
    for status, content, error in refusals:
        await respond(cron, status, content, error)
        await cron.execute("CALL ticking.follow()")
    await cron.execute("CALL ticking.follow()")  # nothing has come back yet
    assert await cron.fetchval("SELECT count(*) FROM net.requests") == 5
    await cron.execute("UPDATE ticking.slots SET tried = tried - interval '50 seconds'")
    await cron.execute("CALL ticking.follow()")  # and now it never will
    bodies = [row["body"] for row in await cron.fetch("SELECT body FROM net.requests")]
    assert (len(bodies), len(set(bodies))) == (6, 1)
    await respond(cron, 503, "still away")
    with pytest.raises(asyncpg.RaiseError, match=r"not taken:.*HTTP 503"):
        await cron.execute("CALL ticking.follow()")
    assert await cron.fetchval("SELECT answer FROM ticking.slots WHERE NOT taken") == "still away"
    await cron.execute("CALL ticking.follow()")  # said once


async def test_a_refused_tick_fails_at_once(cron: Connection) -> None:
    await cron.execute("UPDATE ticking.jobs SET secret = 'another secret altogether'")
    await ring(cron)
    assert (await posted(cron)).status_code == 401
    with pytest.raises(asyncpg.RaiseError, match="HTTP 401"):
        await cron.execute("CALL ticking.follow()")
    assert await cron.fetchval("SELECT count(*) FROM net.requests") == 1


async def test_success_that_is_not_tocsins_is_none(cron: Connection) -> None:
    await ring(cron)
    await respond(cron, 200, "<html>welcome</html>")
    with pytest.raises(asyncpg.RaiseError, match="HTTP 200"):
        await cron.execute("CALL ticking.follow()")


async def test_the_stand_in_for_pgcrypto_makes_the_hmac_that_python_makes(cron: Connection) -> None:
    for key in (b"k", b"k" * 64, b"k" * 200):
        made = await cron.fetchval("SELECT hmac($1::bytea, $2::bytea, 'sha256')", b"a.b", key)
        assert made.hex() == tick_signature(key, "a", "b")
