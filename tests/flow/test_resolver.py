"""Looking names up: bounded, shared, and never in anybody's way."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest

from service.flow.resolver import Resolver, Unready, Unresolved
from tests.polling import eventually


class Servers:
    """The blocking side: `stuck.test` hangs until released, every other name answers."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self.asked: list[str] = []
        self.release = threading.Event()

    def __call__(self, host: str, port: int) -> Sequence[str]:
        """Look up."""
        self.asked.append(host)
        if host.startswith("stuck"):
            self.release.wait(30)
        return [f"192.0.2.{port}"]


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Servers whose hanging threads end with the test."""
    made = Servers()
    yield made
    made.release.set()


async def test_the_systems_resolver_knows_this_machine() -> None:
    assert "127.0.0.1" in await Resolver()("localhost", 80)


async def test_a_silent_name_server_holds_up_neither_its_caller_nor_other_names(servers: Servers) -> None:
    resolver = Resolver(look_up=servers, timeout_seconds=0.1)
    await resolver("other.test", 1)
    with pytest.raises(Unresolved, match=r"no answer within 0.1 s"):
        await resolver("stuck.test", 1)
    assert await resolver("fine.test", 7) == ["192.0.2.7"]


async def test_a_look_up_that_hangs_is_joined_and_not_started_again(servers: Servers) -> None:
    resolver = Resolver(look_up=servers, timeout_seconds=0.1)
    await resolver("other.test", 1)
    for _ in range(5):
        with pytest.raises(Unresolved):
            await resolver("stuck.test", 1)
    assert servers.asked == ["other.test", "stuck.test"]
    resolver._timeout_seconds = 3600  # for look-ups that begin from here on; this one's time is over
    with pytest.raises(Unresolved):
        await asyncio.wait_for(resolver("stuck.test", 1), 5)
    servers.release.set()
    await eventually(lambda: not resolver._flights)
    assert await resolver("stuck.test", 1) == ["192.0.2.1"]


async def test_one_who_stops_waiting_takes_the_answer_from_nobody(servers: Servers) -> None:
    resolver = Resolver(look_up=servers)
    one, other = (asyncio.create_task(resolver("stuck.test", 1)) for _ in range(2))
    await eventually(lambda: servers.asked)
    one.cancel()
    servers.release.set()
    assert await other == ["192.0.2.1"]
    assert one.cancelled()
    assert servers.asked == ["stuck.test"]


async def test_more_hanging_look_ups_than_agreed_are_our_own_trouble(servers: Servers) -> None:
    resolver = Resolver(look_up=servers, threads=3, timeout_seconds=0.05)
    waiting = [asyncio.create_task(resolver(f"stuck{number}.test", 1)) for number in range(3)]
    await asyncio.gather(*waiting, return_exceptions=True)
    with pytest.raises(Unready, match="too many"):
        await resolver("fine.test", 1)
    servers.release.set()
    await eventually(lambda: not resolver._flights)
    assert await resolver("fine.test", 1) == ["192.0.2.1"]


ERRORS = [
    (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), Unresolved, "no such name"),
    (socket.gaierror(socket.EAI_NODATA, "No address"), Unresolved, "no such name"),
    (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), Unready, "did not answer; the resolver"),
    (socket.gaierror(socket.EAI_FAIL, "Non-recoverable"), Unresolved, "look-up failed"),
    (socket.gaierror(socket.EAI_SYSTEM, "System error"), Unready, "this machine"),
    (socket.gaierror(socket.EAI_MEMORY, "Memory"), Unready, "this machine"),
    (OSError(24, "Too many open files"), Unready, "this machine"),
    (UnicodeError("label empty or too long"), Unresolved, "not a name"),
    (RuntimeError("a defect that mentions s3cret.test"), Unready, "this machine"),
]


@pytest.mark.parametrize(("error", "kind", "told"), ERRORS, ids=range(len(ERRORS)))
async def test_every_failure_is_an_answer_in_coarse_words(error: Exception, kind: type[Exception], told: str) -> None:
    def failing(*_: object) -> Sequence[str]:
        raise error

    with pytest.raises(kind, match=told) as failed:
        await Resolver(look_up=failing)("s3cret.test", 1)
    assert "s3cret" not in str(failed.value)


async def test_a_name_without_an_answer_is_to_blame_only_while_others_get_theirs() -> None:
    def one_is_silent(host: str, _: int) -> Sequence[str]:
        if host == "silent.test":
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")
        return ["192.0.2.1"]

    resolver = Resolver(look_up=one_is_silent)
    with pytest.raises(Unready, match="answered nobody"):
        await resolver("silent.test", 1)
    await resolver("fine.test", 1)
    with pytest.raises(Unresolved, match="did not answer"):
        await resolver("silent.test", 1)


async def test_no_thread_to_be_had_is_our_own_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    with pytest.raises(Unready, match="thread"):
        await Resolver()("localhost", 80)


HANGING_PROCESS = """
import asyncio, time
from service.flow.resolver import Resolver, Unready

async def main():
    try:
        await Resolver(look_up=lambda host, port: time.sleep(600), timeout_seconds=0.05)("stuck.test", 1)
    except Unready:
        print("gave up")

asyncio.run(main())
"""


async def test_a_hanging_look_up_does_not_hold_up_the_exit_of_the_process() -> None:
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", HANGING_PROCESS], capture_output=True, text=True, timeout=50, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "gave up\n", "")
