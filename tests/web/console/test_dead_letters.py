"""The queue of dead letters: by kind, ticked and looked at before anything is done, and replayed by filter."""

from service.flow import replaying
from tests.web.conftest import Api
from tests.web.console.conftest import Browser

QUEUE = "/console/dead-letters"
REVIEW = f"{QUEUE}/review"
NEW = "/console/replays/new"


async def letters(api: Api, count: int = 3) -> list[str]:
    """Dead letters, newest first; the last of them can only be resolved, since its payload is gone."""
    await api.scene.subscriber("billing", "http://127.0.0.1:1/hook")
    for number in range(count):
        await api.scene.event(f"ship-{number}")
    await api.scene.execute(
        "UPDATE tocsin.deliveries SET state = 'rejected', reason = 'rejected-by-receiver', finished_at = now()"
    )
    await api.scene.execute("UPDATE tocsin.events SET body = NULL, purged_at = now() WHERE subject = 'ship-0'")
    return [item["id"] for item in (await api.client.get("/v1/deliveries")).json()["items"]]


async def states(api: Api) -> list[str]:
    """Of the deliveries, newest first."""
    return [item["state"] for item in (await api.client.get("/v1/deliveries")).json()["items"]]


async def test_the_queue_shows_the_kinds_and_each_letter_and_leads_to_both_ways_on(api: Api, browser: Browser) -> None:
    ids = await letters(api)
    page = await browser.open(QUEUE)
    assert [each.attributes["name"] for each in page.all("input") if each.attributes.get("value") == "1"] == ids
    links = {each.attributes.get("href", "") for each in page.all("a")}
    assert f"{NEW}?state=rejected&reason=rejected-by-receiver" in links
    assert f"{REVIEW}?{'&'.join(f'{each}=1' for each in ids)}" in links
    assert "No dead letter is like that." in (await browser.open(f"{QUEUE}?state=ambiguous")).text()
    await browser.open(f"{QUEUE}?state=delivered", status=422)


async def test_what_is_ticked_is_counted_before_it_is_replayed_and_done_once(api: Api, browser: Browser) -> None:
    ids = await letters(api)
    await api.client.post(
        f"/v1/deliveries/{ids[1]}/resolve", json={"resolution": "delivered", "reason": "they have it"}
    )
    path = f"{REVIEW}?{'&'.join(f'{each}=1' for each in ids)}"
    page = await browser.open(path)
    for words in ("2 dead letters picked", "Would be replayed 1", "Payload purged 1", "Dead no longer 1"):
        assert words in page.text()
    assert await states(api) == ["rejected", "delivered", "rejected"]
    form = {**page.fields(REVIEW), "id": ids, "deed": "replay", "reason": "mended"}
    for _ in range(2):
        answer = await browser.http.post(REVIEW, data=form, follow_redirects=True)
        assert "1 is going out again. 2 could not be" in answer.text
    assert await states(api) == ["pending", "delivered", "rejected"]
    [line] = (await api.client.get(f"/v1/audit?object=delivery:{ids[0]}")).json()["items"]
    assert (line["actor"], line["action"], line["reason"]) == ("bootstrap", "delivery.replayed", "mended")


async def test_what_is_ticked_can_be_resolved_at_once(api: Api, browser: Browser) -> None:
    ids = await letters(api)
    path = f"{REVIEW}?{ids[0]}=1&{ids[2]}=1"
    form = {**(await browser.open(path)).fields(REVIEW), "id": [ids[0], ids[2]], "reason": "they have them"}
    undecided = await browser.http.post(REVIEW, data=form | {"deed": "burn"}, follow_redirects=True)
    assert (str(undecided.url).endswith(path), "must say what to do with them" in undecided.text) == (True, True)
    form |= (await browser.open(path)).fields(REVIEW) | {"id": [ids[0], ids[2]], "deed": "cancelled", "reason": "old"}
    await browser.http.post(REVIEW, data=form)
    assert await states(api) == ["cancelled", "rejected", "cancelled"]
    await browser.open(REVIEW, status=422)


async def test_a_replay_by_filter_is_counted_started_followed_and_stopped(api: Api, browser: Browser) -> None:
    await letters(api)
    assert "What matches now" not in (await browser.open(NEW)).text()
    path = f"{NEW}?reason=rejected-by-receiver&since=2020-01-01T00:00&ratePerSecond=0.5"
    page = await browser.open(path)
    for words in ("Would be replayed 2", "Payload purged 1", "Takes 4 s", "Replay 2 deliveries"):
        assert words in page.text()
    assert "reason must have 1 to 500 characters" in (await browser.fill(path, "/console/replays")).notice
    page = await browser.fill(path, "/console/replays", reason="their network is back")
    [replay] = (await api.client.get("/v1/replays")).json()["items"]
    assert replay["filter"] == {"reason": "rejected-by-receiver", "since": "2020-01-01T00:00:00Z"}
    assert (replay["reason"], replay["ratePerSecond"], replay["state"]) == ("their network is back", 0.5, "running")
    await replaying.once(api.house.db, api.house.doorbell)
    here = f"/console/replays/{replay['id']}"
    assert "Skipped 1" in (await browser.open(here)).text()
    page = await browser.fill(here, f"{here}/cancel", reason="enough")
    assert ("cancelled" in page.text(), page.actions) == (True, set())
    assert "their network is back" in (await browser.open("/console/replays")).text()


async def test_a_filter_that_cannot_be_replayed_says_why_in_place(api: Api, browser: Browser) -> None:
    await letters(api)
    page = await browser.open(f"{NEW}?state=pending")
    assert "state must be one of" in page.text()
    assert page.actions == set()
