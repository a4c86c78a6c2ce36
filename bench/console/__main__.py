"""`python -m bench.console`: a full house, and a real browser that proves its console; see `make console-proof`."""

import argparse
import asyncio
import logging
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import uvloop

from bench.console import filling
from bench.console.receivers import receiving
from bench.console.scene import Scene
from bench.house import LOOPBACK, House
from bench.processes import ROOT, free_port, tocsin
from bench.stage import say
from bench.waiting import Failed, until
from service import logs, migrations
from service.domain.model import Scope
from service.embedded import EmbeddedPostgres
from service.flow import control
from service.store.database import Database
from service.store.vault import Vault, new_key

SECONDS = 240
"""The whole of it takes no longer, or has failed."""
PICTURES = Path(tempfile.gettempdir()) / "tocsin-console"
_SECRET = "a-tick-secret-of-the-proof"  # noqa: S105 - of nobody else
_ADMIN_KEY = "the-key-of-ada-who-may-do-everything"
_CONFIG = f"""
[jobs."{filling.JOB}"]
source = "tick"
event_type = "{filling.JOB}"
secrets = ["env:PROOF_SECRET"]

[jobs."invoices.remind"]
source = "tick"
event_type = "invoice.overdue"
secrets = ["env:PROOF_SECRET_TOO"]
"""


def main() -> None:
    """Prove it; the exit code says whether all held."""
    given = _arguments()
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("The proof needs Chromium on the PATH as `chromium`: apt-get install chromium")
    logs.configure("console", level=logging.ERROR)
    try:
        raise SystemExit(uvloop.run(_proved(given.python, chromium, given.pictures)))
    except Failed as error:
        raise SystemExit(f"failed: {error}") from None
    except TimeoutError:
        raise SystemExit(f"failed: not done within {SECONDS} s") from None


async def _proved(python: Path, chromium: str, pictures: Path) -> int:
    async with asyncio.timeout(SECONDS), receiving() as receivers:
        with tempfile.TemporaryDirectory(prefix="tocsin-proof-") as folder, EmbeddedPostgres(Path(folder)) as postgres:
            await migrations.upgrade(postgres.url)
            house = House(Database(postgres.url), Vault([key := new_key()]))
            try:
                say("filling the house: 200 subscribers, 100,000 deliveries")
                run = await filling.fill(house, receivers)
                env = _environment(Path(folder), postgres.url, key)
                async with _running(env) as base:
                    await filling.begin(house)
                    reader = await control.create_key(house.db, name="rita", scope=Scope.READ, actor="proof")
                    scene = Scene(
                        base=base,
                        admin_key=_ADMIN_KEY,
                        reader_key=reader.key,
                        mended=filling.MENDED,
                        hostile=filling.HOSTILE,
                        paused=filling.PAUSED,
                        job=filling.JOB,
                        run=str(run),
                        pictures=str(pictures),
                    )
                    scene.write(told := Path(folder) / "scene.json")
                    return await _browsed(python, chromium, told)
            finally:
                await house.db.close()


def _environment(folder: Path, url: str, key: str) -> dict[str, str]:
    config = folder / "tocsin.toml"
    config.write_text(_CONFIG)
    return {
        "PROOF_SECRET": _SECRET,
        "PROOF_SECRET_TOO": f"{_SECRET}-too",
        "TOCSIN_BOOTSTRAP_KEY": _ADMIN_KEY,
        "TOCSIN_CONFIG": str(config),
        "TOCSIN_DATABASE_URL": url,
        "TOCSIN_EGRESS_ALLOW": LOOPBACK,
        "TOCSIN_ENCRYPTION_KEYS": key,
        "TOCSIN_LOG_FORMAT": "json",
        "TOCSIN_PORT": str(free_port()),
    }


@asynccontextmanager
async def _running(env: dict[str, str]) -> AsyncIterator[str]:
    """The API and a worker as they are shipped, ready; gives the API's address."""
    base = f"http://127.0.0.1:{env['TOCSIN_PORT']}"

    def asked() -> bool:
        try:
            with urlopen(f"{base}/readyz", timeout=5) as answer:  # noqa: S310 - of our own loopback
                return bool(answer.status == 200)  # noqa: PLR2004 - HTTP's
        except (URLError, ConnectionError, TimeoutError):
            return False

    async def ready() -> bool:
        return await asyncio.to_thread(asked)

    async with tocsin("serve", env), tocsin("worker", env):
        await until(ready, "the API to be ready")
        yield base


async def _browsed(python: Path, chromium: str, told: Path) -> int:
    """What the browser's side says of it all; its words go to our own output."""
    say("driving the console")
    command = (str(python), "-m", "bench.console.browser", str(told), chromium)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="one that has the browser's library")
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="the folder that pictures go to")
    return parser.parse_args()


if __name__ == "__main__":
    main()
