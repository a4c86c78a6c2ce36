"""The recipes that run on a machine: each rings a real service, tries again with the same run id, and fails aloud."""

import json
import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Live
from tests.examples.recipes import JOB, TICKERS, is_signed, ran, secret_file, slot
from tests.receivers import DISCONNECT, Receiver, answer

TAKEN = answer(202, body=b'{"accepted":true,"duplicate":false,"run":{}}')
FRUGAL = {"TICK_PAUSE": "0"}

pytestmark = pytest.mark.parametrize("ticker", TICKERS)


async def test_each_claims_a_run_and_again_finds_it(live: Live, tmp_path: Path, ticker: str) -> None:
    env = {"TOCSIN_URL": live.url, "TICK_SECRET_FILE": secret_file(tmp_path)}
    cutoff = slot(hours_ago=list(TICKERS).index(ticker) + 1)
    first, second = [await ran(*TICKERS[ticker], JOB, cutoff, env=env) for _ in range(2)]
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert (first.json["duplicate"], second.json["duplicate"]) == (False, True)
    assert first.json["run"]["id"] == second.json["run"]["id"]
    assert first.json["run"]["runId"] == f"{JOB}@{cutoff}"


async def test_without_a_cutoff_the_run_is_that_of_this_minute(tmp_path: Path, ticker: str) -> None:
    async with Receiver(then=TAKEN) as receiver:
        env = {"TOCSIN_URL": f"{receiver.url}/", "TICK_SECRET_FILE": secret_file(tmp_path)}
        assert (await ran(*TICKERS[ticker], JOB, env=env)).code == 0
        [request] = receiver.requests
    tick = json.loads(request.body)
    assert request.target == f"/v1/jobs/{JOB}/ticks"
    assert tick["cutoffIso"].endswith(":00Z")
    assert tick["runId"] == f"{JOB}@{tick['cutoffIso']}"
    assert is_signed(request.body)


@pytest.mark.parametrize(
    "secret",
    [b"x" * 63, b"x" * 64, b"x" * 65, bytes(range(1, 256)), b"100%s \\n\\045 $HOME `id` \"'", "schlüssel".encode() * 4],
    ids=["63", "64", "65", "every byte", "odd characters", "UTF-8"],
)
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"], ids=["bare", "newline", "CRLF"])
async def test_any_secret_signs_as_the_api_reads_it(tmp_path: Path, ticker: str, secret: bytes, end: bytes) -> None:
    async with Receiver(then=TAKEN) as receiver:
        env = {"TOCSIN_URL": receiver.url, "TICK_SECRET_FILE": secret_file(tmp_path, secret + end)}
        assert (await ran(*TICKERS[ticker], JOB, env=env)).code == 0
    assert is_signed(receiver.requests[0].body, secret)


async def test_a_wrong_secret_fails_at_once_and_says_so(live: Live, tmp_path: Path, ticker: str) -> None:
    env = {"TOCSIN_URL": live.url, "TICK_SECRET_FILE": secret_file(tmp_path, b"another secret altogether")}
    done = await ran(*TICKERS[ticker], JOB, env=env)
    assert (done.code, done.out) == (1, "")
    assert "401" in done.err
    assert "tick-refused" in done.err


async def test_what_says_not_now_is_tried_again_with_the_same_run(tmp_path: Path, ticker: str) -> None:
    async with Receiver(answer(503), answer(500), answer(429), DISCONNECT, then=TAKEN) as receiver:
        env = {"TOCSIN_URL": receiver.url, "TICK_SECRET_FILE": secret_file(tmp_path), **FRUGAL}
        done = await ran(*TICKERS[ticker], JOB, env=env)
        assert (done.code, done.err) == (0, "")
    assert len(receiver.requests) == 5
    assert len({request.body for request in receiver.requests}) == 1


async def test_it_gives_up_after_its_tries(tmp_path: Path, ticker: str) -> None:
    async with Receiver(then=answer(503, body=b"the database is away")) as receiver:
        env = {"TOCSIN_URL": receiver.url, "TICK_SECRET_FILE": secret_file(tmp_path), "TICK_TRIES": "3", **FRUGAL}
        done = await ran(*TICKERS[ticker], JOB, env=env)
    assert (done.code, done.out) == (1, "")
    assert "the database is away" in done.err
    assert len({request.body for request in receiver.requests}) == 1
    assert len(receiver.requests) == 3


async def test_a_server_that_is_not_there_is_a_failure(tmp_path: Path, ticker: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {"TOCSIN_URL": f"http://127.0.0.1:{port}", "TICK_SECRET_FILE": secret_file(tmp_path), **FRUGAL}
    done = await ran(*TICKERS[ticker], JOB, env=env)
    assert done.code == 1
    assert "not taken" in done.err


@pytest.mark.parametrize("status", [301, 307, 400, 404, 409, 422])
async def test_any_other_answer_is_a_failure_that_is_not_tried_again(tmp_path: Path, ticker: str, status: int) -> None:
    async with Receiver(then=answer(status, headers={"location": "/elsewhere"})) as receiver:
        env = {"TOCSIN_URL": receiver.url, "TICK_SECRET_FILE": secret_file(tmp_path), **FRUGAL}
        done = await ran(*TICKERS[ticker], JOB, env=env)
    assert done.code == 1
    assert str(status) in done.err
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("body", [b"<html>welcome</html>", b"[]", b""])
async def test_success_that_is_not_tocsins_is_a_failure(tmp_path: Path, ticker: str, body: bytes) -> None:
    async with Receiver(then=answer(200, body=body)) as receiver:
        env = {"TOCSIN_URL": receiver.url, "TICK_SECRET_FILE": secret_file(tmp_path)}
        done = await ran(*TICKERS[ticker], JOB, env=env)
    assert done.code == 1
    assert "not from Tocsin" in done.err


async def test_a_wrong_call_is_told_how_it_is_called(tmp_path: Path, ticker: str) -> None:
    env = {"TICK_SECRET_FILE": secret_file(tmp_path)}
    for arguments in ((), ("--help",), (JOB, "now", "more")):
        done = await ran(*TICKERS[ticker], *arguments, env=env)
        assert (done.code, "usage" in done.err) == (2, True)
    assert (await ran(*TICKERS[ticker], JOB, env={}, unset=["TICK_SECRET_FILE"])).code == 2


async def test_a_secret_that_is_not_there_is_a_failure(tmp_path: Path, ticker: str) -> None:
    for file in (str(tmp_path / "nowhere"), str(tmp_path), secret_file(tmp_path, b"\n")):
        done = await ran(*TICKERS[ticker], JOB, env={"TICK_SECRET_FILE": file})
        assert done.code == 1
        assert Path(file).name in done.err


@pytest.mark.parametrize("wrong", [{"TICK_PAUSE": "soon"}, {"TICK_PAUSE": "-1"}, {"TICK_TRIES": "many"}])
async def test_a_wrong_number_is_refused_before_anything_is_sent(
    tmp_path: Path, ticker: str, wrong: dict[str, str]
) -> None:
    async with Receiver(then=TAKEN) as receiver:
        env = {"TOCSIN_URL": receiver.url, "TICK_SECRET_FILE": secret_file(tmp_path), **wrong}
        done = await ran(*TICKERS[ticker], JOB, env=env)
    assert (done.code, done.out) == (1, "")
    assert next(iter(wrong)) in done.err
    assert receiver.requests == []
