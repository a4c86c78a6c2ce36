"""`tocsin replay`, `replays`, `resolve`, `cancel` and `dead-letters`: a bad night and the morning after."""

import json

import httpx

from tests.cli import inside
from tests.cli.conftest import API_KEY, Live
from tests.cli.process import Done
from tests.polling import eventually
from tests.receivers import Receiver, answer


async def tocsin(live: Live, *arguments: str) -> Done:
    return await inside.call(*arguments, env=live.env)


async def publish(live: Live, url: str, *subjects: str) -> None:
    """A subscriber `night` of its own event type, and events of that."""
    headers = {"authorization": f"Bearer {API_KEY}"}
    async with httpx.AsyncClient(base_url=live.url, headers=headers, trust_env=False) as client:
        wanted = {"url": url, "eventTypes": ["night.fell"], "maxConcurrency": 1}
        assert (await client.put("/v1/subscribers/night", json=wanted)).status_code == 201
        for subject in subjects:
            event = {"type": "night.fell", "subject": subject, "version": 1, "data": {}}
            assert (await client.post("/v1/events", json=event)).status_code == 201


async def states(live: Live) -> list[str]:
    listed = await tocsin(live, "deliveries", "--subscriber", "night", "--json")
    return [each["state"] for each in listed.json]


async def test_dead_letters_are_counted_replayed_followed_and_resolved(live: Live) -> None:
    async with Receiver(*[answer(404, body=b"who?\x1b[2J")] * 5, then=answer(200)) as receiver:
        await publish(live, receiver.url, "a", "b", "c", "d")

        async def all_dead() -> bool:
            return await states(live) == ["rejected"] * 4

        await eventually(all_dead, seconds=20)
        counted = await tocsin(live, "dead-letters", "--subscriber", "night", "--json")
        [group] = counted.json["groups"]
        assert (group["count"], group["class"], group["status"]) == (4, "rejected", 404)
        assert "\x1b" not in group["detail"]
        assert "who?" in (await tocsin(live, "dead-letters", "--by-subscriber")).out

        one = group["example"]
        assert (await tocsin(live, "replay", one)).code == 2  # a reason is asked for
        assert (await tocsin(live, "replay", one, "--reason", "r", "--type", "x")).code == 2
        assert (await tocsin(live, "replay", one, "--reason", "mended, they say")).code == 0
        await eventually(all_dead, seconds=20)
        resolved = await tocsin(live, "resolve", one, "--as", "delivered", "--reason", "told by phone")
        assert (resolved.code, "resolved-by-operator" in resolved.out) == (0, True)
        refused = await tocsin(live, "cancel", one, "--reason", "r")
        assert (refused.code, "delivered" in refused.err) == (1, True)

        shown = (await tocsin(live, "deliveries", "show", one)).out
        assert "mended, they say" in shown
        assert "delivery.resolved" in shown
        night = ("--subscriber", "night", "--ended-for", "rejected-by-receiver", "--reason", "mended")
        dry = await tocsin(live, "replay", *night, "--dry-run")
        assert dry.out.startswith("dry-run: 3 match")
        done = await tocsin(live, "replay", *night, "--watch", "--json")
        assert (done.json["state"], done.json["replayed"]) == ("completed", 3)
        assert "completed" in done.err

        async def all_delivered() -> bool:
            return await states(live) == ["delivered"] * 4

        await eventually(all_delivered, seconds=20)
    replay = done.json["id"]
    assert replay in (await tocsin(live, "replays", "list")).out
    assert json.loads((await tocsin(live, "replays", "show", replay, "--json")).out) == done.json
    assert (await tocsin(live, "replays", "watch", replay)).out.startswith("completed: 3 match, 3 replayed")
    assert (await tocsin(live, "replays", "cancel", replay, "--reason", "r")).code == 1
    nothing = await tocsin(live, "replay", "--reason", "r")
    assert (nothing.code, "/filter" in nothing.err) == (1, True)
