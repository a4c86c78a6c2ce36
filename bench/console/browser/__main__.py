"""Drives the console through all of it, prints what held and what did not, and fails where something did not."""

import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from playwright.sync_api import Browser, Error, sync_playwright

from bench.console.browser import guards, looks, times, walks
from bench.console.browser.places import places
from bench.console.browser.seat import Seat, Unproved, seated
from bench.console.scene import Scene

_LOOPBACK_ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


class Proof:
    """Keeps what failed."""

    def __init__(self, scene: Scene) -> None:
        """Begin with nothing."""
        self.scene = scene
        self.failed: list[str] = []

    def step(self, name: str, seat: Seat, does: Callable[[], object]) -> None:
        """Do one thing, say whether it held, and see to it that nothing odd happened meanwhile."""
        began = monotonic()
        try:
            does()
        except (Unproved, Error) as error:
            self._fail(name, str(error))
            seat.page.screenshot(path=Path(self.scene.pictures) / f"failed-{name.replace(' ', '-')}.png")
        for oddity in seat.odd:
            self._fail(name, oddity)
        if not self.failed or not self.failed[-1].startswith(f"{name}: "):
            print(f"held    {name} ({monotonic() - began:.1f} s)", flush=True)
        seat.odd.clear()

    def findings(self, found: list[str]) -> None:
        """Show what axe-core found; what is grave fails."""
        for finding in found:
            print(f"axe     {finding}", flush=True)
        self.failed += looks.grave(found)

    def _fail(self, name: str, why: str) -> None:
        print(f"FAILED  {name}: {why}", flush=True)
        self.failed.append(f"{name}: {why}")


def _prove(proof: Proof, browser: Browser) -> None:
    scene, folder = proof.scene, Path(proof.scene.pictures)
    with seated(browser, scene.base) as seat:
        proof.step("sign-in looks", seat, lambda: proof.findings(looks.look_outside(seat, folder)))
        for walk in walks.WALKS:
            proof.step(_name(walk), seat, lambda walk=walk: walk(seat, scene))  # type: ignore[misc]
        for guard in (guards.no_script_of_a_receiver, guards.no_form_without_its_token):
            proof.step(_name(guard), seat, lambda guard=guard: guard(seat, scene))  # type: ignore[misc]
        for other in (guards.a_double_click_does_it_once, guards.a_reader_reads, guards.it_works_without_scripts):
            proof.step(_name(other), seat, lambda other=other: other(seat, scene, browser))  # type: ignore[misc]
        known = places(seat, scene)
        proof.step("times", seat, lambda: times.measure(seat, known))
        proof.step("looks", seat, lambda: proof.findings(looks.look(seat, known, folder)))
        proof.step("looks while paused", seat, lambda: proof.findings(looks.banner(seat, scene, folder)))


def _name(step: Callable[..., object]) -> str:
    return step.__name__.replace("_", " ")


def main() -> int:
    """The exit code."""
    told, chromium = sys.argv[1:]
    proof = Proof(Scene.read(Path(told)))
    Path(proof.scene.pictures).mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[_LOOPBACK_ALONE])
        try:
            _prove(proof, browser)
        finally:
            browser.close()
    print(f"\npictures: {proof.scene.pictures}\n{len(proof.failed)} failed", flush=True)
    return 1 if proof.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
