"""Subscribers in the console: how each fares, and steering it."""

import re

from service.domain.model import Scope
from service.domain.signing import decode_secret
from tests.web.conftest import Api
from tests.web.console.conftest import Browser, browsing

LIST = "/console/subscribers"
BILLING = f"{LIST}/billing"


async def test_the_list_says_how_each_fares_and_finds_those_in_a_state(api: Api, browser: Browser) -> None:
    for slug in ("billing", "search", "stock"):
        await api.scene.subscriber(slug, f"http://127.0.0.1:1/hook?token={slug}-token")
    await api.scene.event("ship-1")
    for slug, change in {"search": "failures = 10", "stock": "state = 'paused', state_reason = 'a move'"}.items():
        await api.scene.execute(
            f"UPDATE tocsin.lanes l SET {change} FROM tocsin.subscribers s WHERE s.row = l.subscriber AND s.id = :slug",
            slug=slug,
        )
    page = await browser.open(LIST)
    for words in ("billing fine 1", "search circuit open 1", "stock paused a move 1"):
        assert words in page.text()
    assert "token" not in page.html
    paused = (await browser.open(f"{LIST}?state=paused")).text()
    assert ("stock" in paused, "billing" in paused) == (True, False)
    found = await browser.http.get(f"{LIST}?id=billing&state=")
    assert (found.status_code, found.headers["location"]) == (303, BILLING)
    await browser.open(f"{LIST}/nobody", status=404)


async def test_a_pause_needs_a_reason_and_a_resume_takes_it_back(api: Api, browser: Browser) -> None:
    await api.scene.subscriber("billing", "http://127.0.0.1:1/hook")
    assert "must have 1 to 500" in (await browser.fill(BILLING, f"{BILLING}/pause")).notice
    page = await browser.fill(BILLING, f"{BILLING}/pause", reason="they deploy")
    assert ("It is paused: they deploy" in page.text(), f"{BILLING}/pause" in page.actions) == (True, False)
    page = await browser.fill(BILLING, f"{BILLING}/resume", reason="done")
    assert "subscriber.resumed" in page.text()
    assert (await api.client.get("/v1/subscribers/billing")).json()["state"] == "active"


async def test_a_new_secret_is_shown_once_and_signs(api: Api, browser: Browser) -> None:
    await api.scene.subscriber("billing", "http://127.0.0.1:1/hook")
    wrong = await browser.fill(BILLING, f"{BILLING}/rotate-secret", graceSeconds="soon")
    assert wrong.notice == "graceSeconds must be a number of seconds"
    page = await browser.fill(BILLING, f"{BILLING}/rotate-secret", graceSeconds="0")
    [secret] = re.findall(r"whsec_[A-Za-z0-9+/=]+", page.notice)
    assert "whsec_" not in (await browser.open(BILLING)).html
    sealed = await api.scene.execute("SELECT sealed FROM tocsin.subscriber_secrets")
    assert [api.house.vault.open(row.sealed) for row in sealed] == [decode_secret(secret)]


async def test_a_test_leads_to_its_delivery(api: Api, browser: Browser) -> None:
    await api.scene.subscriber("billing", "http://127.0.0.1:1/hook")
    page = await browser.fill(BILLING, f"{BILLING}/test")
    assert "tocsin.test of billing" in page.text()
    assert "The test is on its way" in page.notice


async def test_each_sees_the_actions_of_his_scope(api: Api, browser: Browser, reader: Browser) -> None:
    await api.scene.subscriber("billing", "http://127.0.0.1:1/hook", headers={"x-token": "s3cret-value"})
    operator = (await api.key("oskar", Scope.OPERATE))["authorization"].removeprefix("Bearer ")
    page = await browser.open(BILLING)
    assert ("x-token" in page.text(), "s3cret-value" in page.html) == (True, False)
    assert page.actions == {f"{BILLING}/{verb}" for verb in ("pause", "test", "rotate-secret")}
    assert (await reader.open(BILLING)).actions == set()
    async with browsing(api, operator) as his:
        assert (await his.open(BILLING)).actions == {f"{BILLING}/{verb}" for verb in ("pause", "test")}
        mine = (await his.open(BILLING)).fields(f"{BILLING}/test")
        assert (await his.http.post(f"{BILLING}/rotate-secret", data=mine | {"graceSeconds": "0"})).status_code == 403


async def test_a_new_secret_is_shown_in_the_session_and_on_the_page_that_asked_for_it_alone(
    api: Api, browser: Browser
) -> None:
    await api.scene.subscriber("billing", "http://127.0.0.1:1/hook")
    mine = (await browser.open(BILLING)).fields(f"{BILLING}/rotate-secret")
    asked = await browser.http.post(f"{BILLING}/rotate-secret", data=mine | {"graceSeconds": "0"})
    assert asked.status_code == 303
    assert "whsec_" not in (await browser.open("/console/")).html  # of another tab, say
    assert "whsec_" not in (await browser.http.get("/console/nope")).text
    notice = browser.http.cookies["tocsin_notice"]
    async with browsing(api, None) as other:
        other.http.cookies.set("tocsin_notice", notice, path="/console")
        assert "whsec_" not in (await other.http.get("/console/sign-in")).text
    assert "whsec_" in (await browser.open(BILLING)).html
