"""What a disruptive drill may lay hands on, and how it makes sure beforehand that it is the right thing."""

import os
import signal
import socket
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from service.cli.drill_evidence import Delivery, NotRun
from service.cli.drill_receiver import Request
from service.cli.drill_stage import REASON, Scene
from service.domain.timestamps import parse_rfc3339
from service.settings import Settings

_LOOKS = 40
_LONGEST_LEASE = 300


@dataclass(frozen=True, slots=True)
class Hands:
    """The workers of this machine that may be stopped, of which the first may be killed, and what starts it again."""

    worker_pids: tuple[int, ...]
    restart: str | None
    settings: Settings

    async def workers(self, scene: Scene) -> tuple[int, ...]:
        """The process ids, each proven to be a worker of this installation before anything is done to it.

        Raises:
            NotRun: none was named, or one made no attempt in this drill, or may not be signalled.

        """
        if not self.worker_pids:
            raise NotRun("name a worker of this machine with --worker-pid")
        wanted = {worker(pid): pid for pid in self.worker_pids}
        await _watch_for(scene, wanted)
        for name, pid in wanted.items():
            if name not in scene.stage.workers:
                seen = ", ".join(sorted(scene.stage.workers))
                raise NotRun(f"process {pid} of this machine made no attempt here ({seen} did): name one of theirs")
            _check_signals(pid)
        return self.worker_pids


async def _watch_for(scene: Scene, names: Collection[str]) -> None:
    """Send deliveries, one at a time, until each of these workers has made an attempt in this drill, or forty went."""
    target = await scene.subscriber("200", "who", topic="who", quiet=True)
    for count in range(1, _LOOKS + 1):
        if scene.stage.workers.issuperset(names):
            return
        await scene.publish(topic="who")
        await scene.stage.full((await scene.ended(target, count))[-1])


def _check_signals(pid: int) -> None:
    try:
        os.kill(pid, 0)
    except OSError as error:
        raise NotRun(f"process {pid} cannot be signalled ({error.strerror})") from None


def worker(pid: int) -> str:
    """What the names begin with under which this process of this machine writes its attempts."""
    return f"{socket.gethostname()[:80]}:{pid}"


async def lease_seconds(scene: Scene) -> float:
    """How long leases are here, as one of them says.

    Raises:
        NotRun: too long to wait for.

    """
    target = await scene.subscriber("hang", "lease", topic="lease", quiet=True, timeoutSeconds=3)
    await scene.publish(topic="lease")
    await scene.seen(target)
    [leased] = await scene.stage.deliveries(target)
    if leased["leaseExpiresAt"] is None:
        raise NotRun("the lease of a delivery in flight could not be read: try again")
    seconds = (parse_rfc3339(leased["leaseExpiresAt"]) - datetime.now(UTC)).total_seconds()
    await scene.stage.call("POST", f"/v1/deliveries/{leased['id']}/cancel", {"reason": REASON})
    if seconds > _LONGEST_LEASE:
        raise NotRun(f"a lease lasts {seconds:.0f} s: rehearse with a TOCSIN_LEASE_SECONDS up to {_LONGEST_LEASE}")
    return seconds


async def ready(scene: Scene) -> None:
    """Wait until the API is ready."""
    await scene.stage.call("GET", "/readyz")


def explained(requests: Sequence[Request], done: Sequence[Delivery]) -> bool:
    """Whether there is a lost lease, or an attempt that got no answer, for each request that came again."""
    attempts = [attempt for each in done for attempt in each["attempts"]]
    unanswered = sum(each["outcome"] in {"in_doubt", "timeout"} and not each["late"] for each in attempts)
    return bool(len(requests) - len(done) <= unanswered)


@contextmanager
def stoppable(*pids: int) -> Iterator[None]:
    """Inside, these processes may be stopped; they go on when the context is left, however that happens."""
    try:
        yield
    finally:
        go_on(*pids)


def go_on(*pids: int) -> None:
    """Let stopped processes go on; those that are dead stay so."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue
