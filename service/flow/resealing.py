"""Rotating the key that seals what is stored: whatever an older key sealed is sealed with the first one."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from service.domain.errors import Contended
from service.store import audit, resealing
from service.store.database import Database, Tx
from service.store.vault import Unreadable, Vault

BATCH = 200
"""Rows that are locked at once, for some milliseconds."""
_TRIES = 5
"""Of one batch, where others hold its locks for long."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: what was looked at, what an older key had sealed, and what no key opens.

    `seen` counts secrets and subscribers, of `total`; `older` and `unreadable` count secrets and values of headers.
    """

    total: int
    seen: int = 0
    older: int = 0
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class _Page:
    """What one batch brought; `last` is the position of its last row, None at the end of the table."""

    last: int | None
    seen: int
    older: int = 0
    unreadable: int = 0


_Batch: TypeAlias = Callable[[Tx, Vault, int, str | None], Awaitable[_Page]]
"""Looks at the rows behind a position; with an actor it seals them anew in that name."""


async def reseal(db: Database, vault: Vault, *, actor: str, dry_run: bool = False) -> AsyncGenerator[Progress, None]:
    """Seal anew, batch by batch, what the first key did not seal; says after each batch how far it is.

    Each batch is a transaction with an audit line of its own: whatever ends it half-way, a second start does the
    rest, and one that is through finds nothing. What no key opens stays as it is. A dry run counts and changes nothing.

    Raises:
        Contended: somebody held a lock for too long; start it again.
        Unavailable: the database is away; start it again.

    """
    async with db.begin() as tx:
        progress = Progress(await resealing.count(tx))
    for batch in (_secrets, _headers):
        after: int | None = 0
        while after is not None:
            page = await _turn(db, vault, batch, after, None if dry_run else actor)
            after = page.last
            progress = replace(
                progress,
                seen=progress.seen + page.seen,
                older=progress.older + page.older,
                unreadable=progress.unreadable + page.unreadable,
            )
            yield progress


async def _turn(db: Database, vault: Vault, batch: _Batch, after: int, actor: str | None) -> _Page:
    """One batch in its transaction, tried again where it lost against others."""
    for _ in range(_TRIES - 1):
        try:
            async with db.begin() as tx:
                return await batch(tx, vault, after, actor)
        except Contended:
            continue
    async with db.begin() as tx:
        return await batch(tx, vault, after, actor)


async def _secrets(tx: Tx, vault: Vault, after: int, actor: str | None) -> _Page:
    found = await resealing.secrets_after(tx, after, BATCH, lock=actor is not None)
    older = [each for each in found if not vault.is_current(each.sealed)]
    anew = {each.id: sealed for each in older if (sealed := _anew(vault, each.sealed))}
    if anew and actor:
        await resealing.put_secrets(tx, anew)
        await _note(tx, actor, secrets=len(anew))
    return _Page(found[-1].id if len(found) == BATCH else None, len(found), len(anew), len(older) - len(anew))


async def _headers(tx: Tx, vault: Vault, after: int, actor: str | None) -> _Page:
    found = await resealing.headers_after(tx, after, BATCH, lock=actor is not None)
    older = {each.row: stale for each in found if (stale := _stale(vault, each.headers))}
    anew = {row: {name: text for name, text in stale.items() if text} for row, stale in older.items()}
    values, all_values = sum(map(len, anew.values())), sum(map(len, older.values()))
    if values and actor:
        await resealing.put_headers(
            tx, {each.row: {**each.headers, **anew[each.row]} for each in found if anew.get(each.row)}
        )
        await _note(tx, actor, headers=values)
    return _Page(found[-1].row if len(found) == BATCH else None, len(found), values, all_values - values)


def _stale(vault: Vault, headers: Mapping[str, str]) -> dict[str, str | None]:
    """The values that the first key did not seal, sealed anew; None for each that no key opens."""
    stale = {name: text.encode() for name, text in headers.items() if not vault.is_current(text.encode())}
    anew = {name: _anew(vault, sealed) for name, sealed in stale.items()}
    return {name: sealed.decode("ascii") if sealed else None for name, sealed in anew.items()}


def _anew(vault: Vault, sealed: bytes) -> bytes | None:
    try:
        return vault.seal(vault.open(sealed))
    except Unreadable:
        return None


async def _note(tx: Tx, actor: str, **counts: int) -> None:
    await audit.write(tx, actor=actor, action="secrets.resealed", object="encryption-keys", detail=counts)
