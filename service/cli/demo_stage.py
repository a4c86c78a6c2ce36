"""What the demo sets up before it rings: its folder, its job, its settings, its port and its shipments."""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from socket import socket

from sqlalchemy import text

from service.cli.lifecycle import listen
from service.domain.errors import ConfigurationError, TocsinError
from service.settings import Settings
from service.store.database import Database

JOB = "shipments.expire"
HEADER_FILE = "authorization.header"
DUE, NOT_YET = 200, 40
_PORTS = 100

_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

CONFIG = """\
# Written by `tocsin demo`; examples/tocsin.toml is the same job with its explanation.

[jobs."{job}"]
source = "sql"
secrets = [{secret}]
event_type = "shipment.expired"
page_size = 50
statement = \"\"\"
  UPDATE shipments SET status = 'expired', version = version + 1
   WHERE id IN (SELECT id FROM shipments WHERE status = 'active' AND expires_at <= :cutoff
                 ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED)
  RETURNING tenant_id, id AS subject, version, jsonb_build_object('shipmentId', id, 'status', status) AS data
\"\"\"
"""

_TABLE = """
    CREATE TABLE IF NOT EXISTS shipments (
        id text PRIMARY KEY, tenant_id text NOT NULL DEFAULT 'default', status text NOT NULL DEFAULT 'active',
        expires_at timestamptz NOT NULL, version bigint NOT NULL DEFAULT 1)
"""
_SHIPMENTS = """
    INSERT INTO shipments (id, expires_at)
    SELECT :batch || '-' || n, CASE WHEN n <= :due THEN now() - n * interval '1 minute'
                                    ELSE now() + (n - :due) * interval '1 minute' END
      FROM generate_series(1, :total) AS n
"""
_OVERDUE = "SELECT count(*) FROM shipments WHERE status = 'active' AND expires_at <= now()"


def stage_settings() -> Settings:
    """The demo's settings: a database and keys of its own in a folder of its own, and loopback allowed.

    Whatever else is set for a real Tocsin on this machine stays out of it.
    """
    settings = Settings(
        database_url=None,
        bootstrap_key=None,
        encryption_keys=(),
        egress_allow=_LOOPBACK,
        egress_deny=(),
        lease_seconds=10,  # a demo that was killed is taken up again before anybody grows impatient
        drain_seconds=5,
    )
    home = settings.data_dir.expanduser().resolve() / "demo"
    return settings.model_copy(update={"data_dir": home, "config": home / "tocsin.toml"})


@contextmanager
def stage(settings: Settings) -> Iterator[bytes]:
    """Take the demo's folder, write its job there and give the job's tick secret.

    Raises:
        ConfigurationError: the folder cannot be written.
        TocsinError: another demo runs in it.

    """
    home = settings.data_dir
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(home / "demo.lock", os.O_RDWR | os.O_CREAT, 0o600)
        secret = _write_job(home, settings.config)
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename or home} cannot be written ({error.strerror}): name another folder with TOCSIN_DATA_DIR."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield secret
    except BlockingIOError:
        raise TocsinError(f"a demo runs in {home} already: stop it first, or set TOCSIN_DATA_DIR.") from None
    finally:
        os.close(lock)


def _write_job(home: Path, config: Path) -> bytes:
    """Write the configuration, and the secret where there is none yet."""
    path = home / "tick.secret"
    if not path.exists():
        _write_private(path, secrets.token_hex(32))
    config.write_text(CONFIG.format(job=JOB, secret=json.dumps(f"file:{path}")), encoding="utf-8")
    return path.read_bytes().strip()


def write_header(settings: Settings) -> None:
    """Keep the API key as a header that `curl -H @FILE` reads, so that it is in no argument and no history."""
    if settings.bootstrap_key is not None:
        _write_private(
            settings.data_dir / HEADER_FILE, f"authorization: Bearer {settings.bootstrap_key.get_secret_value()}"
        )


def _write_private(path: Path, line: str) -> None:
    """Write a line into a file that only this user may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(line + "\n")


def listen_near(host: str, port: int) -> socket:
    """A bound socket on the port, or on the next one that is free.

    Raises:
        ConfigurationError: none of a hundred is.

    """
    for candidate in range(port, min(port + _PORTS, 65_536)):
        try:
            return listen(host, candidate)
        except ConfigurationError:
            continue
    raise ConfigurationError(f"no port from {port} on is free on {host}: choose another with TOCSIN_PORT.")


async def add_shipments(db: Database, batch: str) -> int:
    """Put shipments into the application's table, some overdue, the rest due in the next minutes.

    Gives back how many are overdue now, those that an earlier demo left behind too.
    """
    async with db.begin() as tx:
        await tx.conn.execute(text(_TABLE))
        await tx.conn.execute(text(_SHIPMENTS), {"batch": batch, "due": DUE, "total": DUE + NOT_YET})
        return int((await tx.conn.execute(text(_OVERDUE))).scalar_one())
