"""Signing in and out: a session is as good as the key behind it, and no site but ours can use it."""

import asyncio
import time

import pytest

from service.domain.model import Scope
from service.flow import control
from service.store.database import Database
from service.store.vault import Vault, new_key
from service.web.console import session
from service.web.keyring import Keyring
from service.web.state import DATABASE_SECONDS, state_of
from tests.web.conftest import BOOTSTRAP_KEY, Api, called
from tests.web.console.conftest import Browser, browsing

PAGES = ("/console/", "/console/runs", "/console/jobs?x=1", "/console/audit", "/console/nowhere")


async def test_the_cookie_is_for_the_console_alone_and_holds_no_key(stranger: Browser) -> None:
    answer = await stranger.http.post("/console/sign-in", data={"key": BOOTSTRAP_KEY, "next": "/console/runs?job=a"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/runs?job=a")
    cookie = answer.headers.get_list("set-cookie")[0]
    assert cookie.startswith("tocsin_session=")
    assert {"HttpOnly", "Path=/console", "SameSite=strict", "Secure", "Max-Age=43200"} <= set(cookie.split("; "))
    assert BOOTSTRAP_KEY not in cookie


@pytest.mark.parametrize("path", PAGES)
async def test_whoever_is_not_signed_in_is_led_to_where_one_may_and_back(stranger: Browser, path: str) -> None:
    answer = await stranger.http.get(path)
    assert answer.status_code == 303
    form = await stranger.open(answer.headers["location"])
    assert form.fields("/console/sign-in")["next"] == path


async def test_a_link_on_another_site_opens_for_whoever_is_signed_in(stranger: Browser) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    answer = await stranger.http.get("/console/runs?job=a", headers=headers)
    assert '<meta http-equiv="refresh" content="0; url=/console/runs?job=a">' in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil.example/", "/v1/runs", "/console/\\evil", ""])
async def test_signing_in_leads_nowhere_but_to_the_console(stranger: Browser, wanted: str) -> None:
    answer = await stranger.http.post("/console/sign-in", data={"key": BOOTSTRAP_KEY, "next": wanted})
    assert answer.headers["location"] == "/console/"


async def test_a_wrong_key_opens_nothing_and_is_not_shown_again(stranger: Browser) -> None:
    answer = await stranger.http.post("/console/sign-in", data={"key": "ECHO-wrong"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
    assert "ECHO" not in answer.text


@pytest.mark.parametrize(
    "headers", [{"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}, {"origin": "null"}]
)
async def test_another_site_cannot_sign_somebody_in(stranger: Browser, headers: dict[str, str]) -> None:
    answer = await stranger.http.post("/console/sign-in", data={"key": BOOTSTRAP_KEY}, headers=headers)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


async def test_a_revoked_key_ends_its_session(api: Api, reader: Browser) -> None:
    await reader.open("/console/runs")
    await control.revoke_key(api.house.db, "rita", actor="test")
    state_of(api.app).keyring = Keyring()  # the moment for which a process remembers a good key has passed
    assert (await reader.http.get("/console/runs")).status_code == 303


async def test_a_session_ends_after_twelve_hours(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    now, cookie = time.time(), browser.http.cookies["tocsin_session"]
    for later, status in ((session.LIFE_SECONDS - 60, 200), (session.LIFE_SECONDS + 2, 303)):
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        # The client's jar forgets the cookie by the same clock: whoever has stolen it sends it for ever.
        headers = {"cookie": f"tocsin_session={cookie}"}
        assert (await browser.http.get("/console/runs", headers=headers)).status_code == status


async def test_a_cookie_that_the_session_did_not_make_opens_nothing(api: Api, stranger: Browser) -> None:
    sealed = [api.house.vault.seal(b"x" * 63), Vault([new_key()]).seal(b"x"), b"junk", b"\xc3\xa9"]
    for cookie in sealed:
        headers = [(b"cookie", b"tocsin_session=" + cookie)]
        assert (await stranger.http.get("/console/runs", headers=headers)).status_code == 303


async def test_signing_out_ends_the_session_in_this_browser(browser: Browser) -> None:
    page = await browser.open("/console/")
    answer = await browser.http.post("/console/sign-out", data=page.fields("/console/sign-out"))
    assert answer.status_code == 303
    assert (await browser.http.get("/console/")).status_code == 303


async def test_the_api_takes_no_session(api: Api) -> None:
    header = await api.key("olga", Scope.OPERATE)
    async with browsing(api, header["authorization"].removeprefix("Bearer ")) as browser:
        cookie = browser.http.cookies["tocsin_session"]
        answer = await browser.http.post("/v1/dispatch/pause", headers={"cookie": f"tocsin_session={cookie}"})
    assert answer.status_code == 401


async def test_where_the_database_hangs_a_page_soon_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "DOOR_SECONDS", 0.1)
    over = asyncio.Event()

    async def never(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with await asyncio.start_server(never, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        hung = Database(f"postgresql+asyncpg://nobody@127.0.0.1:{port}/nowhere")
        async with called(hung) as api, browsing(api, BOOTSTRAP_KEY) as browser, asyncio.timeout(DATABASE_SECONDS / 2):
            assert (await browser.open("/console/", status=503)).all("h1")
        over.set()
        await hung.close()
