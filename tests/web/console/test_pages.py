"""The pages: framed alike, whole without scripts, and whatever comes from outside is shown as text."""

import re

import pytest

from service.domain.model import HeldBy, Scope
from service.store.backlog import Lane
from service.web.console import overview
from service.web.console.charts import Part, Stack
from service.web.console.overview import Pace
from tests.receivers import Receiver, answer
from tests.web.conftest import JOB, Api, instant
from tests.web.console.conftest import Browser, Page, browsing

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
PAGES = (
    "/console/",
    "/console/runs",
    "/console/jobs",
    "/console/audit",
    "/console/sign-in?next=/console/%22",
    "/console/deliveries?runId=019ad3c4-7f00-7b1e-8a2b-3c4d5e6f7081",
    "/console/dead-letters",
    "/console/replays",
    "/console/replays/new?state=rejected",
    "/console/subscribers",
)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_needs_no_inline_script_or_style_and_names_its_parts(
    browser: Browser, stranger: Browser, path: str
) -> None:
    who = stranger if "sign-in" in path else browser
    answer = await who.http.get(path)
    policy = answer.headers["content-security-policy"]
    assert ("default-src 'none'" in policy, "unsafe" in policy, "frame-ancestors 'none'" in policy) == (
        True,
        False,
        True,
    )
    assert (answer.headers["cache-control"], answer.headers["referrer-policy"]) == ("no-store", "same-origin")
    assert not re.search(r"<style|<script(?! src=\"/console/static/)|\sstyle=|\son\w+=|javascript:", answer.text)
    page = await who.open(path)
    assert [len(page.all(tag)) for tag in ("h1", "main")] == [1, 1]
    shown = [each for each in page.all("input") + page.all("select") if each.attributes.get("type") != "hidden"]
    assert all(any(outer.tag == "label" for outer in each.inside) for each in shown)
    for asset in (*page.all("link"), *page.all("script")):
        found = await who.http.get(asset.attributes.get("href") or asset.attributes["src"])
        assert (found.status_code, "immutable" in found.headers["cache-control"]) == (200, True)


async def test_the_navigation_says_where_one_is(browser: Browser) -> None:
    page = await browser.open("/console/runs")
    assert [each.text for each in page.all("a") if "aria-current" in each.attributes] == ["Runs"]


async def test_what_others_wrote_is_shown_as_text(api: Api, browser: Browser) -> None:
    started = await api.client.post(
        f"/v1/jobs/{JOB}/runs", json={"runId": HOSTILE, "cutoff": instant(), "reason": HOSTILE}
    )
    run = started.json()["run"]["id"]
    await api.scene.execute("UPDATE tocsin.runs SET state = 'failed', error = :said", said=HOSTILE)
    await api.client.post(f"/v1/jobs/{JOB}/pause", json={"reason": HOSTILE})
    for path in ("/console/", "/console/runs", f"/console/runs/{run}", "/console/jobs", "/console/audit"):
        page = await browser.open(path)
        assert HOSTILE in page.text()
        assert [each for each in page.elements if each.tag == "img" or "onerror" in each.attributes] == []
        assert all("src" in each.attributes for each in page.all("script"))


async def test_the_overview_says_what_needs_a_person(api: Api, browser: Browser) -> None:
    assert "Nothing is late and nothing needs a person." in (await browser.open("/console/")).text()
    await api.client.post(f"/v1/jobs/{JOB}/runs", json={"runId": "r1", "cutoff": instant()})
    await api.scene.execute("UPDATE tocsin.runs SET state = 'failed', error = 'no such table'")
    await api.client.post("/v1/jobs/reports/pause", json={})
    text = (await browser.open("/console/")).text()
    assert "Runs failed: 1" in text
    assert "Jobs paused: reports" in text
    assert "Nothing is late" not in text


async def test_the_overview_says_that_it_is_late_and_where_and_that_it_never_drains(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = [Stack("02:00", [Part("delivered", 7, "good"), Part("rejected", 2, "bad")])]
    lanes = [Lane("billing", 40, 700.0, HeldBy.CIRCUIT_OPEN, None)]

    async def pace(*_: object) -> Pace:
        return Pace(40, 700.0, 12.0, 3.0, None, hour, lanes)

    monkeypatch.setattr(overview, "_pace", pace)
    page = await browser.open("/console/")
    for words in ("has waited for 11 min 40 s", "The backlog does not drain", "Drained in never", "circuit-open"):
        assert words in page.text()
    [bars] = [each for each in page.all("svg") if "bars" in each.attributes["class"]]
    assert bars.attributes["aria-label"] == "Attempts a minute: 7 delivered, 2 rejected"


async def test_a_failed_run_tells_why_and_goes_on_when_it_is_retried(api: Api, browser: Browser) -> None:
    started = await api.client.post(f"/v1/jobs/{JOB}/runs", json={"runId": "r1", "cutoff": instant()})
    run = started.json()["run"]["id"]
    await api.scene.execute("UPDATE tocsin.runs SET state = 'failed', error = 'no such table'")
    page = await browser.open(f"/console/runs/{run}")
    assert "no such table" in page.text()
    page = await browser.fill(f"/console/runs/{run}", f"/console/runs/{run}/retry", reason="mended")
    assert page.notice == "The run goes on from where it stopped."
    assert page.actions == set()


async def test_one_run_shows_its_deliveries_by_state_and_the_dead_ones_first(api: Api, browser: Browser) -> None:
    await api.scene.subscriber("billing", "http://127.0.0.1:1/")
    started = await api.client.post(f"/v1/jobs/{JOB}/runs", json={"runId": "r1", "cutoff": instant()})
    run = started.json()["run"]["id"]
    for subject in ("ship-1", "ship-2"):
        await api.scene.event(subject)
    await api.scene.execute("UPDATE tocsin.deliveries SET run_id = :run", run=run)
    await api.scene.execute(
        "UPDATE tocsin.deliveries SET state = 'rejected', finished_at = now() "
        "WHERE row = (SELECT min(row) FROM tocsin.deliveries)"
    )
    page = await browser.open(f"/console/runs/{run}")
    [share] = [each for each in page.all("svg") if "share" in each.attributes["class"]]
    assert share.attributes["aria-label"] == "1 rejected, 1 pending"
    text = page.text()
    assert text.index("ship-1") < text.index("ship-2")


async def test_jobs_are_paused_resumed_and_started_by_hand(browser: Browser) -> None:
    action = f"/console/jobs/{JOB}"
    page = await browser.fill("/console/jobs", f"{action}/pause", reason="moving")
    assert "Paused: moving" in page.text()
    page = await browser.fill("/console/jobs", f"{action}/runs", runId="by hand 1", reason="catch up")
    assert page.text("h1") == "by hand 1"
    assert "held" in page.text()
    assert f"{action}/pause" in (await browser.fill("/console/jobs", f"{action}/resume")).actions
    page = await browser.fill("/console/jobs", f"{action}/runs", cutoff="tomorrow", reason="x")
    assert page.notice.startswith("cutoff must be RFC 3339")


async def test_lists_are_filtered_and_paged_in_the_url(api: Api, browser: Browser) -> None:
    for number in range(3):
        await api.client.post(f"/v1/jobs/{JOB}/runs", json={"runId": f"r{number}", "cutoff": instant()})
    page = await browser.open("/console/runs?job=&state=claimed&limit=2")
    older = next(each for each in page.all("a") if each.attributes.get("rel") == "next")
    assert (await browser.open(older.attributes["href"])).text().count("r0") == 1
    assert "No run is like that." in (await browser.open("/console/runs?job=reports")).text()
    assert (await browser.open("/console/audit?actor=bootstrap")).text().count("run.started") == 3
    assert "cursor is no cursor of this list" in (await browser.open("/console/runs?cursor=x", status=422)).text()


async def test_what_does_not_exist_is_said_on_a_page(browser: Browser) -> None:
    for path in ("/console/runs/none", "/console/runs/01a22ed6-0eee-7162-992b-8c5f01e74346", "/console/nowhere"):
        assert "There is no such thing here" in (await browser.open(path, status=404)).text()


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/console/dispatch/pause", 405, "POST"),
        ("PUT", "/console/sign-in", 405, "GET, POST"),
        ("DELETE", "/console/static/console.css", 405, "GET"),
        ("ODD", "/console", 405, "GET"),
        ("POST", "/console/nowhere", 404, None),
    ],
)
async def test_a_method_that_a_page_does_not_take_is_refused_on_a_page_that_names_those_it_takes(
    browser: Browser, method: str, path: str, status: int, allow: str | None
) -> None:
    answer = await browser.http.request(method, path)
    assert (answer.status_code, answer.headers.get("allow")) == (status, allow)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert len(Page(answer.text).all("h1")) == 1


async def test_what_others_wrote_stands_apart_and_turns_nothing_around_it(api: Api) -> None:
    mark = "זר"
    hers = await api.key(f"רות{mark}", Scope.ADMIN)
    async with Receiver(answer(503)) as receiver:
        await api.scene.subscriber("billing", receiver.url)
        await api.scene.event(f"{mark}\u202e\u2069")
        await api.scene.dispatcher(f"w{mark}").once()
    started = await api.client.post(
        f"/v1/jobs/{JOB}/runs", json={"runId": f"\u2067{mark}", "cutoff": instant(), "reason": mark}, headers=hers
    )
    await api.client.post("/v1/dispatch/pause", json={"reason": mark}, headers=hers)
    await api.scene.execute("UPDATE tocsin.runs SET state = 'failed', error = :said", said=mark)
    [item] = (await api.client.get("/v1/deliveries")).json()["items"]
    await api.client.post(f"/v1/deliveries/{item['id']}/cancel", json={"reason": mark}, headers=hers)
    runs, delivery = f"/console/runs/{started.json()['run']['id']}", f"/console/deliveries/{item['id']}"
    async with browsing(api, hers["authorization"].removeprefix("Bearer ")) as browser:
        for path in ("/console/", "/console/runs", runs, "/console/audit", "/console/deliveries", delivery):
            page = await browser.open(path)
            found = [each for each in page.elements if mark in each.text]
            outer = {id(each) for element in found for each in element.inside}
            innermost = [each for each in found if id(each) not in outer]
            assert {each.tag for each in innermost} <= {"bdi", "title", "pre"}
            assert all(
                "\u2068" in each.text and each.text.count("\u2069") == 1 for each in innermost if each.tag == "title"
            )
            assert sum(each.tag == "bdi" for each in innermost) > 1
            assert not any(char in each.text for each in page.all("bdi") for char in "\u202e\u2067\u2069")
            assert "\u202e" not in page.html


async def test_what_nobody_expected_is_a_page_too_and_shows_nothing_of_itself(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("a secret in a message")

    monkeypatch.setattr(overview, "read", broken)
    page = await browser.open("/console/", status=500)
    assert ([each.text for each in page.all("a") if each.text == "Runs"], "secret" in page.html) == (["Runs"], False)
