"""What start-up says of subscribers that the present settings do not suit."""

from ipaddress import ip_network
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.domain.model import Mode
from service.flow import survey
from service.store.database import Database
from service.store.vault import Vault, new_key
from tests.scenes import LOOPBACK, Scene


async def _warned(scene: Scene, vault: Vault | None = None, deny: str | None = None) -> list[dict[str, Any]]:
    with capture_logs() as lines:
        denied = [ip_network(deny)] if deny else []
        await survey.warn_at_start(scene.db, vault or scene.vault, LOOPBACK if deny else (), denied)
    return [dict(line) for line in lines]


async def test_a_house_in_order_is_started_without_a_word(database: Database) -> None:
    scene = Scene(database)
    await scene.subscriber("name", "https://somewhere.example/hook", headers={"x-team": "north"})
    await scene.subscriber("public", "http://203.0.114.7/hook")
    assert await _warned(scene) == []


async def test_addresses_that_the_guard_refuses_now_are_named_with_the_mend(database: Database) -> None:
    scene = Scene(database)
    await scene.subscriber("here", "http://127.0.0.1:9/secret-path")
    await scene.subscriber("shadow", "http://127.0.0.1:9/", mode=Mode.SHADOW)
    [line] = await _warned(scene)
    assert (line["log_level"], line["subscriber"]) == ("warning", "here")
    assert "loopback" in line["because"]
    assert "TOCSIN_EGRESS_ALLOW" in line["mend"]
    assert "secret-path" not in repr(line)
    [line] = await _warned(scene, deny="127.0.0.1/32")
    assert "TOCSIN_EGRESS_DENY" in line["because"]


async def test_of_many_refused_addresses_twenty_are_named_and_the_rest_counted(database: Database) -> None:
    scene = Scene(database)
    for number in range(survey.NAMED + 3):
        await scene.subscriber(f"s{number}", "http://127.0.0.1:9/")
    lines = await _warned(scene)
    assert len(lines) == survey.NAMED + 1
    assert lines[-1]["more"] == 3


@pytest.mark.parametrize("page", [2, 500])
async def test_subscribers_whose_secrets_no_key_opens_are_named_in_one_line(
    database: Database, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "_PAGE", page)
    scene = Scene(database)
    for number in range(survey.NAMED + 1):
        await scene.subscriber(f"s{number}", "http://203.0.114.7/")
    [line] = await _warned(scene, Vault([new_key()]))
    assert (line["event"], line["count"]) == ("subscribers.unreadable", survey.NAMED + 1)
    assert len(line["subscribers"]) == survey.NAMED
    assert "TOCSIN_ENCRYPTION_KEYS" in line["mend"]


async def test_start_up_does_not_look_for_long(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_PAGE", 1)
    monkeypatch.setattr(survey, "START_SECONDS", -1.0)
    scene = Scene(database)
    for number in range(3):
        await scene.subscriber(f"s{number}", "http://127.0.0.1:9/")
    told = await _warned(scene)
    assert [line["event"] for line in told] == ["subscribers.not_all_examined", "subscriber.address_refused"]
