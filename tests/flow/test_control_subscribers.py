"""What operators do to subscribers: nothing is lost, no secret is shown twice, and the trail tells who did it."""

import asyncio
import json

import pytest

from service.domain.errors import Conflict, Invalid
from service.domain.identifiers import parse_delivery_id
from service.domain.model import SubscriberState
from service.domain.signing import decode_secret, new_secret, sign
from service.flow.control_subscribers import MAX_VALID_SECRETS
from service.store import fan_out, lanes, subscribers
from service.store.database import Database
from service.store.vault import Vault, new_key
from tests.polling import eventually
from tests.receivers import Receiver
from tests.scenes import Scene
from tests.steering import blocked, claim, delete, pause, put, resume, rotate, send_test, signs_with, trail
from tests.wanting import wanted


@pytest.fixture
def scene(database: Database) -> Scene:
    return Scene(database)


async def test_a_subscriber_is_created_with_a_secret_that_is_shown_once(scene: Scene) -> None:
    created = await put(scene)
    assert created.created
    assert created.secret is not None
    assert await signs_with(scene, created.record.row) == (decode_secret(created.secret),)
    again = await put(scene)
    assert (again.created, again.secret) == (False, None)
    assert created.secret not in repr(created)


async def test_a_given_secret_is_the_one_that_signs(scene: Scene) -> None:
    secret = new_secret(b"k" * 32)
    created = await put(scene, secret=secret)
    assert created.secret == secret
    assert await signs_with(scene, created.record.row) == (b"k" * 32,)


async def test_the_same_creation_again_passes_with_its_secret_and_no_other_secret_does(scene: Scene) -> None:
    secret = new_secret(b"k" * 32)
    created = await put(scene, secret=secret)
    assert not (await put(scene, secret=secret)).created
    with pytest.raises(Invalid, match="cannot be accepted") as refusal:
        await put(scene, secret=new_secret(b"j" * 32), url="https://other.example/")
    assert refusal.value.problems[0].pointer == "/secret"
    assert "rotate-secret" in refusal.value.problems[0].detail
    assert await signs_with(scene, created.record.row) == (b"k" * 32,)


async def test_of_many_creations_at_once_one_creates_and_its_secret_is_the_only_one(scene: Scene) -> None:
    answers = await asyncio.gather(*(put(scene) for _ in range(8)))
    [created] = [answer for answer in answers if answer.created]
    assert created.secret is not None
    assert [answer.secret for answer in answers if not answer.created] == [None] * 7
    assert await signs_with(scene, created.record.row) == (decode_secret(created.secret),)


async def test_repeated_puts_use_up_no_row_numbers(scene: Scene) -> None:
    first = await put(scene)
    for attempts in (3, 4, 3, 3):
        await put(scene, max_attempts=attempts)
    assert (await put(scene, "next")).record.row == first.record.row + 1


async def test_an_unchanged_put_writes_nothing(scene: Scene) -> None:
    first = await put(scene, headers={"x-a": "1"}, max_attempts=3)
    again = await put(scene, headers={"x-a": "1"}, max_attempts=3)
    assert again.record == first.record
    assert [line.action for line in await trail(scene)] == ["subscriber.created"]


async def test_a_put_replaces_the_whole_and_keeps_the_secret(scene: Scene) -> None:
    created = await put(scene, max_attempts=3, headers={"x-a": "1"}, rate_per_second=2.0)
    updated = await put(scene, max_concurrency=2)
    assert updated.record.wanted == wanted(max_concurrency=2)
    assert updated.record.row == created.record.row
    assert updated.record.revision > created.record.revision
    assert len(await signs_with(scene, created.record.row)) == 1
    line = (await trail(scene))[-1]
    assert (line.actor, line.action, line.object) == ("alice", "subscriber.updated", "subscriber:acme")
    assert set(line.detail["changed"]) == {"maxAttempts", "headers", "ratePerSecond", "maxConcurrency"}


async def test_a_put_with_the_mask_of_a_header_is_refused_and_the_value_stays(scene: Scene) -> None:
    await put(scene, headers={"authorization": "Bearer t"})
    with pytest.raises(Invalid) as refusal:
        await put(scene, headers={"authorization": "***"})
    assert refusal.value.problems[0].pointer == "/headers/authorization"
    assert (await put(scene, headers={"authorization": "Bearer t"})).record.revision == 2  # as it was created


async def test_a_put_replaces_headers_that_no_key_opens_any_more(scene: Scene) -> None:
    created = await put(scene, headers={"x-a": "1"})
    scene.vault = Vault([new_key()])
    assert (await put(scene, headers={"x-a": "1"})).record.wanted.headers == {"x-a": "1"}
    await rotate(scene, grace_seconds=0)
    assert len(await signs_with(scene, created.record.row)) == 1


async def test_the_tenant_is_fixed_while_any_delivery_is_on_record_also_over_a_deletion(scene: Scene) -> None:
    await put(scene)
    await put(scene, tenant_id="north")
    await put(scene)
    await scene.event()
    await scene.execute("UPDATE tocsin.deliveries SET state = 'rejected', finished_at = now()")
    with pytest.raises(Conflict, match="make another subscriber"):
        await put(scene, tenant_id="rival", url="https://rival.example/")
    await delete(scene)
    with pytest.raises(Conflict, match="make another subscriber"):
        await put(scene, tenant_id="rival", url="https://rival.example/")
    await scene.execute("DELETE FROM tocsin.deliveries")
    assert (await put(scene, tenant_id="rival")).record.wanted.tenant_id == "rival"


async def test_a_change_of_the_tenant_waits_for_a_fan_out_and_is_refused_by_what_it_made(scene: Scene) -> None:
    await put(scene)
    await scene.event()
    await scene.execute("DELETE FROM tocsin.deliveries")
    await scene.execute("UPDATE tocsin.events SET fanned_out_at = NULL, fan_out_after = 0")
    async with scene.db.begin() as tx:
        assert (await fan_out.fan_out(tx, None)).deliveries == 1
        moving = asyncio.create_task(put(scene, tenant_id="rival"))
        assert await eventually(lambda: blocked(scene))
    with pytest.raises(Conflict, match="make another subscriber"):
        await moving


async def test_a_put_leaves_a_pause_alone(scene: Scene) -> None:
    await put(scene)
    await pause(scene)
    assert (await put(scene, max_attempts=3)).record.state is SubscriberState.PAUSED


async def test_a_refused_put_writes_nothing(scene: Scene) -> None:
    with pytest.raises(Invalid):
        await put(scene, max_attempts=0)
    async with scene.db.begin() as tx:
        assert await subscribers.lock(tx, "acme") is None
    assert await trail(scene) == []


async def test_pause_and_resume_can_be_repeated_and_write_one_line_each(scene: Scene) -> None:
    await put(scene)
    assert await asyncio.gather(*(pause(scene) for _ in range(3))) == [SubscriberState.PAUSED] * 3
    assert await asyncio.gather(*(resume(scene) for _ in range(3))) == [SubscriberState.ACTIVE] * 3
    told = [(line.actor, line.action, line.reason, line.detail) for line in (await trail(scene))[1:]]
    assert told == [
        ("bob", "subscriber.paused", "deploy", {}),
        ("bob", "subscriber.resumed", "done", {"was": "paused"}),
    ]


async def test_a_paused_subscriber_shows_the_reason_until_it_is_resumed(scene: Scene) -> None:
    await put(scene)
    await pause(scene, "the receiver is being deployed")
    assert (await put(scene)).record.state_reason == "the receiver is being deployed"
    await resume(scene)
    assert (await put(scene)).record.state_reason is None


async def test_a_disabled_subscriber_is_enabled_by_resume_and_not_downgraded_by_pause(scene: Scene) -> None:
    created = await put(scene)
    async with scene.db.begin() as tx:
        await lanes.disable(tx, {created.record.row: created.record.revision}, "410 Gone")
    with pytest.raises(Conflict, match="disabled"):
        await pause(scene)
    assert await resume(scene) is SubscriberState.ACTIVE
    assert (await trail(scene))[-1].detail == {"was": "disabled"}


async def test_nothing_is_claimed_while_paused_and_everything_after(scene: Scene) -> None:
    await put(scene)
    await pause(scene)
    await scene.event()
    assert await claim(scene) == 0
    await resume(scene)
    assert await claim(scene) == 1


async def test_a_raised_limit_takes_effect_on_a_lane_that_was_full(scene: Scene) -> None:
    await put(scene, max_concurrency=1)
    await scene.event("s1")
    await scene.event("s2")
    assert await claim(scene) == 1
    assert await claim(scene) == 0
    await put(scene, max_concurrency=2)
    assert await claim(scene) == 1


async def test_in_the_grace_both_secrets_sign_and_a_cached_destination_is_read_again(scene: Scene) -> None:
    created = await put(scene)
    assert created.secret is not None
    new = await rotate(scene)
    assert await signs_with(scene, created.record.row) == (new, decode_secret(created.secret))
    async with scene.db.begin() as tx:
        record = await subscribers.read(tx, "acme")
    assert record is not None
    assert record.revision > created.record.revision


async def test_two_rotations_in_one_grace_keep_all_three_secrets(scene: Scene) -> None:
    created = await put(scene)
    assert created.secret is not None
    second, third = await rotate(scene), await rotate(scene)
    assert await signs_with(scene, created.record.row) == (third, second, decode_secret(created.secret))


async def test_without_a_grace_the_new_secret_signs_alone_at_once(scene: Scene) -> None:
    created = await put(scene)
    await rotate(scene)
    newest = await rotate(scene, 0.0)
    assert await signs_with(scene, created.record.row) == (newest,)


async def test_rotating_in_a_loop_is_refused_before_the_header_grows_without_end(scene: Scene) -> None:
    await put(scene)
    for _ in range(MAX_VALID_SECRETS - 1):
        await rotate(scene)
    with pytest.raises(Conflict, match="graceSeconds 0"):
        await rotate(scene)
    await rotate(scene, 0.0)
    await rotate(scene)


@pytest.mark.parametrize("grace", [-1, -0.001, 604_801, float("nan"), float("inf")])
async def test_a_grace_beyond_a_week_is_refused(scene: Scene, grace: float) -> None:
    await put(scene)
    with pytest.raises(Invalid) as refusal:
        await rotate(scene, grace)
    assert refusal.value.problems[0].pointer == "/graceSeconds"


async def test_the_trail_tells_of_a_rotation_without_the_secret(scene: Scene) -> None:
    await put(scene)
    await rotate(scene)
    line = (await trail(scene))[-1]
    assert (line.action, line.detail) == ("subscriber.secret_rotated", {"graceSeconds": 60.0, "olderSecrets": 1})


async def test_a_test_goes_to_this_subscriber_alone_whatever_it_subscribes_to(scene: Scene) -> None:
    created = await put(scene, event_types=("order.paid",))
    await put(scene, "other")
    sent = await send_test(scene)
    async with scene.db.begin() as tx:
        assert (await fan_out.fan_out(tx, None)).events == 0
    [row] = await scene.execute("SELECT event_id, subscriber FROM tocsin.deliveries")
    assert (row.event_id, row.subscriber) == (sent.event, created.record.row)
    assert parse_delivery_id(sent.delivery) == (sent.event, created.record.row)
    assert (await trail(scene))[-1].detail == {"delivery": sent.delivery}


async def test_many_tests_at_once_are_as_many_events(scene: Scene) -> None:
    await put(scene)
    sent = await asyncio.gather(*(send_test(scene) for _ in range(5)))
    assert len({each.event for each in sent}) == 5


async def test_a_test_waits_while_the_subscriber_is_paused(scene: Scene) -> None:
    await put(scene)
    await pause(scene)
    await send_test(scene)
    assert await claim(scene) == 0
    await resume(scene)
    assert await claim(scene) == 1


async def test_a_test_arrives_signed_with_every_valid_secret(scene: Scene) -> None:
    async with Receiver() as receiver:
        first = decode_secret(await scene.subscriber("acme", receiver.url))
        second = await rotate(scene)
        await send_test(scene)
        await scene.drain(scene.dispatcher())
        [request] = receiver.requests
    key, sent_at = request.headers["webhook-id"], int(request.headers["webhook-timestamp"])
    assert request.headers["webhook-signature"] == sign([second, first], key, sent_at, request.body)
    body = json.loads(request.body)
    assert (body["type"], body["subject"], key) == ("tocsin.test", "acme", f"{body['id']}:acme")
