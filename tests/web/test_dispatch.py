"""All dispatch paused and resumed at the HTTP door: who may, what is answered, and that repeating changes nothing."""

import pytest

from service.domain.model import Scope
from tests.steering import claim
from tests.web.conftest import Api, pointers, problem

PATH = "/v1/dispatch"


async def test_dispatch_is_paused_with_its_reason_and_resumed_and_tells_what_is_in_flight(api: Api) -> None:
    running = {"paused": False, "reason": None, "pausedBy": None, "since": None, "leased": 0}
    assert (await api.client.get(PATH)).json() == running
    await api.scene.subscriber("acme", "https://203.0.114.7/hook")
    await api.scene.event()
    assert await claim(api.scene) == 1
    operator = await api.key("alice", Scope.OPERATE)
    paused = (await api.client.post(f"{PATH}/pause", json={"reason": " a bad release "}, headers=operator)).json()
    assert paused["since"].endswith("Z")
    assert paused == running | {
        "paused": True, "reason": "a bad release", "pausedBy": "alice", "since": paused["since"], "leased": 1
    }  # fmt: skip
    assert (await api.client.post(f"{PATH}/pause", json={"reason": "another"})).json() == paused
    assert (await api.client.get(PATH)).json() == paused
    for _ in range(2):
        assert (await api.client.post(f"{PATH}/resume")).json() == running | {"leased": 1}


async def test_a_reader_may_look_at_dispatch_and_not_touch_it(api: Api) -> None:
    reader = await api.key("viewer", Scope.READ)
    assert (await api.client.get(PATH, headers=reader)).status_code == 200
    for verb in ("pause", "resume"):
        problem(await api.client.post(f"{PATH}/{verb}", headers=reader), 403, "forbidden")
    assert not (await api.client.get(PATH)).json()["paused"]


async def test_a_pause_that_is_repeated_with_its_key_is_not_done_again(api: Api) -> None:
    keyed = {"idempotency-key": "pause-1"}
    first = await api.client.post(f"{PATH}/pause", json={"reason": "once"}, headers=keyed)
    await api.client.post(f"{PATH}/resume")
    again = await api.client.post(f"{PATH}/pause", json={"reason": "once"}, headers=keyed)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert not (await api.client.get(PATH)).json()["paused"]


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("body", [{"reason": " "}, {"reason": "x" * 501}, {"reason": "a\0b"}, {"pausedBy": "ECHO"}])
async def test_a_bad_reason_or_a_named_requester_is_refused(refusing: Api, verb: str, body: dict[str, str]) -> None:
    assert pointers(await refusing.client.post(f"{PATH}/{verb}", json=body)) == [f"/{next(iter(body))}"]
