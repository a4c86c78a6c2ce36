"""Forms: only our own are taken, only from those who may, and each is done once however often it is sent."""

import asyncio
from typing import Any
from uuid import uuid4

from fastapi.routing import APIRoute

from service.domain.identifiers import delivery_id
from service.domain.model import SubscriberRow
from service.web.console import pages
from tests.web.conftest import JOB, Api
from tests.web.console.conftest import Browser, Page

PAUSE = "/console/dispatch/pause"
RESUME = "/console/dispatch/resume"


async def trail(api: Api) -> list[tuple[str, str, str | None]]:
    lines: list[Any] = list(await api.scene.execute("SELECT actor, action, reason FROM tocsin.audit ORDER BY id"))
    return [(line.actor, line.action, line.reason) for line in lines if not line.action.startswith("key.")]


async def test_pausing_asks_why_and_stands_in_the_trail(api: Api, browser: Browser) -> None:
    page = await browser.fill("/console/", PAUSE, reason="a bad release")
    assert page.notice.startswith("Dispatch is paused")
    assert "All dispatch is paused: a bad release by bootstrap" in page.text("div")
    assert await trail(api) == [("bootstrap", "dispatch.paused", "a bad release")]
    assert (await browser.open("/console/")).notice == ""
    assert (await browser.fill("/console/", RESUME)).notice.startswith("Dispatch goes on")


async def test_what_is_refused_is_said_on_the_page_and_nothing_is_done(api: Api, browser: Browser) -> None:
    page = await browser.fill("/console/", PAUSE, reason="  ")
    assert page.notice == "reason must have 1 to 500 characters, not counting space around them"
    assert await trail(api) == []


async def test_what_was_typed_into_a_refused_form_stands_there_again_once(browser: Browser) -> None:
    action = f"/console/jobs/{JOB}/runs"
    page = await browser.fill("/console/jobs", action, runId='by "hand"', cutoff="tomorrow", reason="a long reason")
    typed = page.fields(action)
    assert (typed["runId"], typed["cutoff"], typed["reason"]) == ('by "hand"', "tomorrow", "a long reason")
    assert (page.fields(f"/console/jobs/{JOB}/pause")["reason"], len(typed["once"])) == ("", 24)
    [opened] = [each for each in page.all("details") if "open" in each.attributes]
    assert "Start a run" in opened.text
    assert (await browser.open("/console/jobs")).fields(action)["reason"] == ""
    page = await browser.fill("/console/jobs", action, cutoff="tomorrow", reason="é" * 3000)
    assert (page.notice[:7], page.fields(action)["reason"]) == ("cutoff ", "")


async def test_a_form_that_is_not_from_our_page_is_refused(api: Api, browser: Browser, reader: Browser) -> None:
    ours = (await browser.open("/console/")).fields(PAUSE) | {"reason": "x"}
    theirs = (await reader.open("/console/")).fields("/console/sign-out")
    for wrong in ({"csrf": ""}, {"csrf": theirs["csrf"]}, {"once": ""}, {"once": "short"}, {"csrf": "é"}):
        answer = await browser.http.post(PAUSE, data=ours | wrong)
        assert answer.status_code == 403
        assert "Nothing was done" in Page(answer.text).text()
    assert await trail(api) == []


async def test_whoever_may_only_read_sees_no_forms_and_is_refused_by_the_server_too(api: Api, reader: Browser) -> None:
    for path in ("/console/", "/console/jobs"):
        assert (await reader.open(path)).actions == set()
    mine = (await reader.open("/console/")).fields("/console/sign-out") | {"reason": "x"}
    answer = await reader.http.post(PAUSE, data=mine)
    assert answer.status_code == 403
    assert "Your key has the scope read; this needs operate." in Page(answer.text).text()
    assert await trail(api) == []


async def test_a_double_click_does_it_once_and_both_answers_say_so(api: Api, browser: Browser) -> None:
    action = f"/console/jobs/{JOB}/runs"
    form = (await browser.open("/console/jobs")).fields(action) | {"reason": "by hand"}
    both = await asyncio.gather(*(browser.http.post(action, data=form) for _ in range(2)))
    assert {answer.headers["location"] for answer in both} == {both[0].headers["location"]}
    assert both[0].headers["location"].startswith("/console/runs/")
    assert await trail(api) == [("bootstrap", "run.started", "by hand")]


async def test_going_back_and_sending_other_values_is_refused(api: Api, browser: Browser) -> None:
    form = (await browser.open("/console/")).fields(PAUSE)
    await browser.send(PAUSE, form | {"reason": "first"})
    assert (await browser.send(PAUSE, form | {"reason": "first"})).notice.startswith("Dispatch is paused")
    assert (await browser.send(PAUSE, form | {"reason": "second"})).notice.startswith("This form was sent before")
    assert await trail(api) == [("bootstrap", "dispatch.paused", "first")]


async def test_what_cannot_be_read_is_refused_within_bounds(browser: Browser) -> None:
    form = (await browser.open("/console/")).fields(PAUSE)
    assert (await browser.http.post(PAUSE, json=form)).status_code == 400
    assert (await browser.http.post(PAUSE, data=form | {"reason": "x" * 70_000})).status_code == 413
    assert (await browser.http.post(PAUSE, data=form | {"reason": "a\0b"})).status_code == 422
    urlencoded = {"content-type": "application/x-www-form-urlencoded"}
    for body in (b"reason=%ff", "reason=é".encode(), b"a=1&" * 2001 + b"a=1"):
        assert (await browser.http.post(PAUSE, content=body, headers=urlencoded)).status_code == 400


async def test_a_link_changes_nothing(api: Api, browser: Browser) -> None:
    assert "This cannot be opened or sent here" in (await browser.open(PAUSE, status=405)).text()
    assert await trail(api) == []


async def test_whoever_may_only_read_can_send_no_form_but_the_one_to_sign_out(api: Api, reader: Browser) -> None:
    mine = (await reader.open("/console/")).fields("/console/sign-out") | {"reason": "x"}
    routes = [route for family in pages._FAMILIES for route in family.routes if isinstance(route, APIRoute)]
    posts = {route.path for route in routes if "POST" in (route.methods or ())}
    for path in posts - {"/console/sign-in", "/console/sign-out"}:
        some = delivery_id(uuid4(), SubscriberRow(1)) if "/deliveries/" in path else uuid4()
        answer = await reader.http.post(path.format(job=JOB, id=some), data=mine)
        assert (answer.status_code, path) == (403, path)
    assert len(posts) > 12
    assert await trail(api) == []
