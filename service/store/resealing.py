"""What is sealed at rest, walked page by page under its locks, so that it can be sealed anew with another key."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import bindparam, text

from service.store.arrays import Flat
from service.store.database import Tx
from service.store.tables import Document


class SealedSecret(NamedTuple):
    """A subscriber's secret, valid or not, as it is stored."""

    id: int
    sealed: bytes


class SealedHeaders(NamedTuple):
    """The headers of one subscriber, deleted ones too: each value sealed by itself, as text."""

    row: int
    headers: Mapping[str, str]


_SECRETS = "SELECT id, sealed FROM tocsin.subscriber_secrets WHERE id > :after ORDER BY id LIMIT :limit"
_HEADERS = "SELECT row, headers FROM tocsin.subscribers WHERE row > :after ORDER BY row LIMIT :limit"
_LOCKED = {False: "", True: " FOR NO KEY UPDATE"}
_PUT_SECRETS = text("""
    UPDATE tocsin.subscriber_secrets s SET sealed = t.sealed
      FROM unnest(:ids, :sealed) AS t (id, sealed) WHERE s.id = t.id
""").bindparams(bindparam("ids", type_=Flat("bigint")), bindparam("sealed", type_=Flat("bytea")))
_PUT_HEADERS = text("""
    UPDATE tocsin.subscribers s SET headers = t.headers::jsonb
      FROM unnest(:rows, :headers) AS t (row, headers) WHERE s.row = t.row
""").bindparams(bindparam("rows", type_=Flat("integer")), bindparam("headers", type_=Flat("text")))
_COUNT = text("""
    SELECT (SELECT count(*) FROM tocsin.subscriber_secrets) AS secrets,
           (SELECT count(*) FROM tocsin.subscribers) AS rows
""")


async def secrets_after(tx: Tx, after: int, limit: int, *, lock: bool) -> list[SealedSecret]:
    """The next secrets behind the id `after`; with `lock` nobody retires or erases them while the transaction lasts."""
    rows = await tx.conn.execute(text(_SECRETS + _LOCKED[lock]), {"after": after, "limit": limit})
    return [SealedSecret(row.id, row.sealed) for row in rows]


async def headers_after(tx: Tx, after: int, limit: int, *, lock: bool) -> list[SealedHeaders]:
    """The headers of the next subscribers behind the row `after`; with `lock` nobody replaces them meanwhile."""
    query = text(_HEADERS + _LOCKED[lock]).columns(headers=Document)
    rows = await tx.conn.execute(query, {"after": after, "limit": limit})
    return [SealedHeaders(row.row, row.headers) for row in rows]


async def put_secrets(tx: Tx, secrets: Mapping[int, bytes]) -> None:
    """Store the same secrets under another seal, by their ids; they sign as before, so no revision grows."""
    await tx.conn.execute(_PUT_SECRETS, {"ids": list(secrets), "sealed": list(secrets.values())})


async def put_headers(tx: Tx, headers: Mapping[int, Mapping[str, str]]) -> None:
    """Store the same headers under another seal, by the subscribers' rows."""
    values = {"rows": list(headers), "headers": [json.dumps(dict(each)) for each in headers.values()]}
    await tx.conn.execute(_PUT_HEADERS, values)


async def count(tx: Tx) -> int:
    """How many secrets and subscribers there are to look at."""
    row = (await tx.conn.execute(_COUNT)).one()
    return int(row.secrets + row.rows)
