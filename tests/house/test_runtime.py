"""The embedded server under a running process: never left behind, revived when it dies, given up when it stays dead."""

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from service import runtime
from service.domain.errors import ConfigurationError, Unavailable
from service.runtime import database_url
from service.settings import Settings
from tests.polling import eventually


class Slow:
    """Stands in for the embedded server, whose start takes as long as the test likes."""

    url = "postgresql+asyncpg://embedded"

    def __init__(self, made: "list[Slow]", release: threading.Event) -> None:
        self.stopped = False
        self.fault: Exception | None = None
        self.looks = 0
        made.append(self)
        release.wait()

    def revive(self) -> bool:
        """Die for good, if that is wanted."""
        self.looks += 1
        if self.fault is not None:
            raise self.fault
        return False

    def stop(self) -> None:
        """Note it."""
        self.stopped = True


@dataclass
class Servers:
    """Those that were started, and the signal for which their starts wait."""

    made: list[Slow] = field(default_factory=list[Slow])
    release: threading.Event = field(default_factory=threading.Event)

    def start(self, _data_dir: Path) -> Slow:
        """Start one."""
        return Slow(self.made, self.release)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Servers:
    servers = Servers()
    monkeypatch.setattr(runtime, "EmbeddedPostgres", servers.start)
    monkeypatch.setattr(runtime, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(runtime, "REVIVAL_SECONDS", 0.05)
    return servers


async def _use(ready: asyncio.Event) -> None:
    async with database_url(Settings(), watched=True):
        ready.set()
        await asyncio.Event().wait()


async def test_a_start_that_nobody_wants_any_more_leaves_no_server_behind(slow: Servers) -> None:
    using = asyncio.create_task(_use(asyncio.Event()))
    await eventually(lambda: slow.made)
    for _ in range(3):
        using.cancel()
        await asyncio.sleep(0)
    slow.release.set()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert [each.stopped for each in slow.made] == [True]


async def test_a_server_that_stays_dead_ends_the_process_with_the_reason(slow: Servers) -> None:
    slow.release.set()
    ready = asyncio.Event()
    using = asyncio.create_task(_use(ready))
    await ready.wait()
    [postgres] = slow.made
    postgres.fault = ConfigurationError("no space left")
    with pytest.raises(ConfigurationError, match="no space left"):
        await using
    assert postgres.stopped
    assert postgres.looks > 1


async def test_a_stop_or_an_error_inside_passes_as_it_is_and_ends_the_watch(slow: Servers) -> None:
    slow.release.set()
    ready = asyncio.Event()
    using = asyncio.create_task(_use(ready))
    await ready.wait()
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    with pytest.raises(Unavailable):
        async with database_url(Settings(), watched=True):
            raise Unavailable
    assert [each.stopped for each in slow.made] == [True, True]
    assert not [task for task in asyncio.all_tasks() if "_revive" in repr(task.get_coro())]
