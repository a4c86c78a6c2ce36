"""Every page of the console that is worth a look, by the name of its pictures."""

from bench.console.browser.seat import Seat
from bench.console.scene import Scene

SIGN_IN = "/console/sign-in"


def places(seat: Seat, scene: Scene) -> dict[str, str]:
    """The pages by name; those of one thing are found on the lists."""

    def first(path: str, selector: str = ".rows tbody th a") -> str:
        seat.open(path)
        return seat.hrefs(selector)[0]

    return {
        "overview": "/console/",
        "runs": "/console/runs",
        "run": f"/console/runs/{scene.run}",
        "run-failed": first("/console/runs?state=failed"),
        "jobs": "/console/jobs",
        "deliveries": "/console/deliveries",
        "deliveries-filtered": f"/console/deliveries?state=pending&subscriberId={scene.paused}",
        "deliveries-none": "/console/deliveries?eventType=nothing.like.that",
        "delivery-dead": first(f"/console/dead-letters?subscriberId={scene.hostile}", ".picks tbody th a"),
        "delivery-replayed": first(f"/console/deliveries?subscriberId={scene.mended}&state=delivered"),
        "delivery-held": first(f"/console/deliveries?subscriberId={scene.paused}&state=pending"),
        "dead-letters": "/console/dead-letters",
        "dead-letters-each": "/console/dead-letters?bySubscriber=true",
        "review": first("/console/dead-letters", ".bar a[href*='/review?']"),
        "replays": "/console/replays",
        "replay": first("/console/replays"),
        "replay-new": "/console/replays/new?state=exhausted&subscriberId=search",
        "subscribers": "/console/subscribers",
        "subscriber": "/console/subscribers/search",
        "subscriber-paused": f"/console/subscribers/{scene.paused}",
        "audit": "/console/audit",
    }
