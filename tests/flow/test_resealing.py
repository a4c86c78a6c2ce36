"""What changing the encryption key promises: afterwards the new key is enough, and no secret has changed."""

import asyncio

import pytest

from service.domain.signing import decode_secret
from service.flow import resealing
from service.flow.resealing import Progress, reseal
from service.store import resealing as stored
from service.store import subscribers
from service.store.database import Database, Tx
from service.store.vault import Vault, new_key
from tests.scenes import Scene
from tests.steering import trail

HEADERS = {"authorization": "Bearer t", "x-team": "north"}


@pytest.fixture
def keys() -> tuple[str, str]:
    return new_key(), new_key()


@pytest.fixture
async def scene(database: Database, keys: tuple[str, str]) -> Scene:
    """Five subscribers with two headers each, sealed with the old key; the vault has both, the new one first."""
    old, new = keys
    scene = Scene(database, vault=Vault([old]))
    for number in range(5):
        await scene.subscriber(f"s{number}", "http://127.0.0.1:9/", headers=HEADERS)
    scene.vault = Vault([new, old])
    return scene


async def _reseal(scene: Scene, *, dry_run: bool = False) -> Progress:
    return [each async for each in reseal(scene.db, scene.vault, actor="cli", dry_run=dry_run)][-1]


async def _readable_with(scene: Scene, key: str) -> int:
    """How many subscribers have their secrets and headers opened by this key alone."""
    rows = [row.row for row in await scene.execute("SELECT row FROM tocsin.subscribers")]
    async with scene.db.begin() as tx:
        found = await subscribers.destinations(tx, rows, Vault([key]))
    assert all(each.headers == HEADERS for each in found if not each.unreadable)
    return sum(not each.unreadable for each in found)


async def test_afterwards_the_new_key_alone_opens_everything_and_nothing_is_left_to_do(
    scene: Scene, keys: tuple[str, str]
) -> None:
    secret = await scene.subscriber("late", "http://127.0.0.1:9/", headers=HEADERS)  # sealed with the new key already
    assert await _reseal(scene, dry_run=True) == Progress(total=12, seen=12, older=15)
    assert await _readable_with(scene, keys[1]) == 1
    assert await _reseal(scene) == Progress(total=12, seen=12, older=15)
    assert await _readable_with(scene, keys[1]) == 6
    assert await _readable_with(scene, keys[0]) == 0
    assert await _reseal(scene) == Progress(total=12, seen=12)
    async with scene.db.begin() as tx:
        row = (await subscribers.lock(tx, "late")).row  # type: ignore[union-attr]
        [late] = await subscribers.destinations(tx, [row], Vault([keys[1]]))
    assert late.secrets == (decode_secret(secret),)
    lines = [line for line in await trail(scene) if line.action == "secrets.resealed"]
    assert [(line.actor, line.detail) for line in lines] == [("cli", {"secrets": 5}), ("cli", {"headers": 10})]


async def test_what_is_ended_half_way_is_done_to_its_end_by_the_next_start(
    scene: Scene, keys: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(_tx: Tx, _anew: object) -> None:
        raise SystemError

    monkeypatch.setattr(resealing, "BATCH", 2)
    with monkeypatch.context() as patched:
        patched.setattr(stored, "put_headers", dies)
        with pytest.raises(SystemError):
            await _reseal(scene)
    assert await _readable_with(scene, keys[1]) == 0  # secrets are done, headers are not
    assert (await _reseal(scene)).older == 10
    assert await _readable_with(scene, keys[1]) == 5


async def test_what_no_key_opens_is_counted_and_left_as_it_is(scene: Scene, keys: tuple[str, str]) -> None:
    scene.vault = Vault([new_key()])
    await scene.subscriber("other", "http://127.0.0.1:9/")
    before = await scene.execute("SELECT sealed FROM tocsin.subscriber_secrets ORDER BY id")
    done = await _reseal(scene)
    assert (done.older, done.unreadable) == (0, 15)
    assert await scene.execute("SELECT sealed FROM tocsin.subscriber_secrets ORDER BY id") == before
    assert await _readable_with(scene, keys[0]) == 5


async def test_two_at_once_end_with_everything_under_the_new_key(
    scene: Scene, keys: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resealing, "BATCH", 1)
    done = await asyncio.gather(_reseal(scene), _reseal(scene))
    assert sum(each.older for each in done) == 15
    assert await _readable_with(scene, keys[1]) == 5
