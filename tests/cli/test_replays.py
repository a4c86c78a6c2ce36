"""`tocsin replay`, `replays`, `resolve`, `cancel` and `dead-letters`: a bad night and the morning after."""

import json
from uuid import uuid4

import httpx

from service.domain.identifiers import delivery_id
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


async def listed(live: Live) -> Done:
    return await tocsin(live, "deliveries", "--subscriber", "night", "--json")


async def states(live: Live) -> list[str]:
    return [each["state"] for each in (await listed(live)).json]


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
        other = next(each["id"] for each in (await listed(live)).json if each["id"] != one)
        missing = delivery_id(uuid4(), 1)
        torn = await tocsin(live, "replay", one, "dlv_torn", "--reason", "r")
        assert (torn.code, torn.out, "dlv_torn is no delivery's id" in torn.err) == (1, "", True)
        stopped = await tocsin(live, "replay", one, missing, other, "--reason", "mended, they say")
        assert (stopped.code, stopped.out.startswith(f"{one} is ")) == (1, True)
        assert f"there is no delivery {missing}" in stopped.err
        assert f"Done before it: 1 of 3; not tried: {other}." in stopped.err
        await eventually(all_dead, seconds=20)
        resolved = await tocsin(live, "resolve", one, "--as", "delivered", "--reason", "told by phone")
        assert (resolved.code, "resolved-by-operator" in resolved.out) == (0, True)
        refused = await tocsin(live, "cancel", one, "--reason", "r")
        assert (refused.code, f"{one}: It is delivered" in refused.err) == (1, True)

        shown = (await tocsin(live, "deliveries", "show", one)).out
        assert "mended, they say" in shown
        assert "delivery.resolved" in shown
        night = ("--subscriber", "night", "--ended-for", "rejected-by-receiver", "--reason", "mended")
        dry = await tocsin(live, "replay", *night, "--dry-run")
        assert dry.out.startswith("dry-run: 3 match, 3 would be released")
        done = await tocsin(live, "replay", *night, "--watch", "--json")
        assert (done.json["state"], done.json["replayed"]) == ("completed", 3)
        assert done.err.startswith(f"Bulk replay {done.json['id']}: running: 3 match")

        async def all_delivered() -> bool:
            return await states(live) == ["delivered"] * 4

        await eventually(all_delivered, seconds=20)
    replay = done.json["id"]
    assert replay in (await tocsin(live, "replays", "list")).out
    assert json.loads((await tocsin(live, "replays", "show", replay, "--json")).out) == done.json
    assert (await tocsin(live, "replays", "watch", replay)).out.startswith("completed: 3 match, 3 released")
    assert (await tocsin(live, "replays", "cancel", replay, "--reason", "r")).code == 1
    assert "speak of release" in (await tocsin(live, "replays", "show", replay)).out
    assert "there is no bulk replay x" in (await tocsin(live, "replays", "show", "x")).err


async def test_a_filter_that_finds_nothing_is_told_in_the_words_of_the_command(live: Live) -> None:
    nothing = await tocsin(live, "replay", "--type", "never.was", "--reason", "r")
    assert (nothing.code, nothing.out) == (0, "completed: nothing matches: nothing was replayed\n")
    typo = await tocsin(live, "replay", "--subscriber", "nosuch", "--reason", "r")
    assert (typo.code, "--subscriber: there is no subscriber of this id" in typo.err) == (1, True)
    assert "--since: " in (await tocsin(live, "replay", "--since", "yesterday", "--reason", "r")).err
    everything = await tocsin(live, "replay", "--reason", "r")
    assert (everything.code, "--subscriber" in everything.err) == (2, True)


async def test_a_delivery_that_was_cancelled_keeps_its_first_reason_and_it_is_told(live: Live) -> None:
    body = json.dumps({"url": "http://127.0.0.1:9/hook", "eventTypes": ["nothing.ever"]}).encode()
    assert (await inside.call("subscribers", "put", "called-off", "-", env=live.env, stdin=body)).code == 0
    assert (await tocsin(live, "pause", "subscriber", "called-off")).code == 0
    one = (await tocsin(live, "subscribers", "test", "called-off", "--json")).json["deliveryId"]
    assert "already" not in (await tocsin(live, "cancel", one, "--reason", "first")).out
    assert "it was so already" in (await tocsin(live, "cancel", one, "--reason", "second")).out
