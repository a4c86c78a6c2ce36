"""Deliveries in the console: sought by the address, told as a story, steered with a reason."""

from service.domain.model import Scope
from service.store import deliveries
from service.store.deliveries import Appetite
from tests.receivers import Receiver, answer
from tests.web.conftest import Api
from tests.web.console.conftest import Browser, Page, browsing

HOSTILE = b'"><script>alert(1)</script><img src=x onerror=alert(2)>'


async def one(api: Api) -> str:
    """The page of the only delivery."""
    [item] = (await api.client.get("/v1/deliveries")).json()["items"]
    return f"/console/deliveries/{item['id']}"


def story(page: Page) -> list[str]:
    """What happened, in order."""
    return [each.text for each in page.all("h3")]


async def test_a_delivery_tells_its_claims_attempts_lost_leases_and_replays_with_who_and_why(
    api: Api, browser: Browser
) -> None:
    scene = api.scene
    async with Receiver(answer(503, body=HOSTILE), answer(422), then=answer(200)) as receiver:
        await scene.subscriber("billing", receiver.url)
        await scene.event("ship-1")
        await scene.dispatcher("w1").once()
        await scene.make_due()
        async with scene.db.begin() as tx:
            await deliveries.claim(tx, Appetite(batch=1, share=1), worker="lost-worker", lease_seconds=60)
        path = await one(api)
        assert story(await browser.open(path))[-1] == "Being sent now"
        await scene.expire_leases()
        await scene.drain(scene.dispatcher("w3"))
        dead = await browser.open(path)
        told = ["The receiver failed", "The lease was lost", "The receiver said no"]
        assert story(dead) == ["Made", *told, "Ended: rejected"]
        alice = (await api.key("alice", Scope.OPERATE))["authorization"].removeprefix("Bearer ")
        async with browsing(api, alice) as her:
            again = await her.fill(path, f"{path}/replay", reason="they mended it")
        assert "on its way again" in again.notice
        await scene.drain(scene.dispatcher("w3"))
    page = await browser.open(path)
    assert story(page) == ["Made", *told, "Replayed by alice", "The receiver has it", "Ended: delivered"]
    for words in ("claimed by lost-worker", "they mended it", "Generation 2", "It answered 503", HOSTILE.decode()):
        assert words in page.text()
    assert (page.all("img"), [each for each in page.all("script") if "src" not in each.attributes]) == ([], [])


async def test_a_held_delivery_says_what_holds_it_and_can_be_cancelled(api: Api, browser: Browser) -> None:
    await api.scene.subscriber("billing", "http://127.0.0.1:1/hook")
    await api.scene.event("ship-1")
    await api.client.post("/v1/subscribers/billing/pause", json={})
    path = await one(api)
    page = await browser.open(path)
    assert "Held: its subscriber is paused." in page.text()
    assert page.actions == {f"{path}/cancel"}
    nameless = await browser.fill(path, f"{path}/cancel")
    assert nameless.notice.startswith("reason must have 1 to 500 characters")
    page = await browser.fill(path, f"{path}/cancel", reason="superseded")
    assert story(page) == ["Made", "Called off by bootstrap", "Ended: cancelled"]
    assert page.actions == {f"{path}/replay"}


async def test_a_reader_sees_a_delivery_and_no_way_to_change_it(api: Api, browser: Browser, reader: Browser) -> None:
    await api.scene.subscriber("billing", "http://127.0.0.1:1/hook")
    await api.scene.event("ship-1")
    path = await one(api)
    assert (await reader.open(path)).actions == set()
    mine = (await reader.open("/console/jobs")).fields("/console/sign-out")
    answer_ = await reader.http.post(f"{path}/cancel", data=mine | {"reason": "r"})
    assert answer_.status_code == 403
    assert "pending" in (await browser.open(path)).text()


async def test_filters_and_pages_are_in_the_address(api: Api, browser: Browser) -> None:
    await api.scene.subscriber("billing", "http://127.0.0.1:1/hook")
    for number in range(3):
        await api.scene.event(f"ship-{number}")
    first = await browser.open("/console/deliveries?state=pending&subscriberId=billing&reason=&limit=2")
    [older] = [each.attributes["href"] for each in first.all("a") if each.attributes.get("rel") == "next"]
    second = await browser.open(older)
    assert ["ship-2" in first.text(), "ship-0" in first.text()] == [True, False]
    assert ["ship-2" in second.text(), "ship-0" in second.text()] == [False, True]
    since = await browser.open("/console/deliveries?since=2099-01-01T00:00&until=2099-01-01T00:00:30Z")
    assert "No delivery is like that." in since.text()
    await browser.open("/console/deliveries?state=gone", status=422)
    await browser.open("/console/deliveries/dlv_x", status=404)
