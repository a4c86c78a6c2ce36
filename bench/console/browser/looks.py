"""Pictures of every page in both themes, on a desk and on a phone, with what axe-core finds wrong with each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from axe_playwright_python.sync_playwright import Axe

from bench.console.browser.places import SIGN_IN
from bench.console.browser.seat import DESKTOP, PHONE, Seat, must
from bench.console.scene import Scene

_GRAVE = {"serious", "critical"}
_THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_FEWEST_RULES = 10
"""Of axe-core's hundred, so many have something to look at even on the sign-in page."""
_WIDTHS = {"desk": DESKTOP, "phone": PHONE}


def look(seat: Seat, places: Mapping[str, str], folder: Path) -> list[str]:
    """Take the pictures; returns what is wrong, a line for each finding."""
    folder.mkdir(parents=True, exist_ok=True)
    axe, found = Axe(), []
    for name, path in places.items():
        seat.open(path)
        found += _from_all_sides(seat, name, folder, axe)
    # An opened form, and a page that is none.
    seat.open("/console/subscribers/store-010")
    seat.page.locator("summary", has_text="New secret").click()
    found += _from_all_sides(seat, "form-open", folder, axe)
    seat.open("/console/nowhere", 404)
    found += _from_all_sides(seat, "not-found", folder, axe)
    return found


def look_outside(seat: Seat, folder: Path) -> list[str]:
    """The same for the one page of those who are not signed in."""
    seat.open(SIGN_IN)
    return _from_all_sides(seat, "sign-in", folder, Axe())


def banner(seat: Seat, _: Scene, folder: Path) -> list[str]:
    """The overview while all dispatch is paused."""
    seat.open("/console/")
    seat.steer("Pause all dispatch", "Pause all dispatch", "the network is worked on")
    seat.page.locator("#banner p").first.wait_for()
    found = _from_all_sides(seat, "overview-paused", folder, Axe())
    seat.steer("Resume dispatch", "Resume dispatch")
    seat.told("Dispatch goes on")
    return found


def _from_all_sides(seat: Seat, name: str, folder: Path, axe: Axe) -> list[str]:
    found = []
    for width, (wide, high) in _WIDTHS.items():
        seat.page.set_viewport_size({"width": wide, "height": high})
        for theme in _THEMES:
            seat.page.emulate_media(color_scheme=theme)
            told = f"{name}-{width}-{theme}"
            seat.page.screenshot(path=folder / f"{told}.png", full_page=True)
            found += [f"{told}: {finding}" for finding in _findings(axe, seat)]
        must(_fits(seat), f"{name} is wider than a {width}")
    seat.page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
    return found


def _findings(axe: Axe, seat: Seat) -> list[str]:
    """What axe-core says, whether grave or not, the grave ones marked."""
    told = axe.run(seat.page).response
    must(len(told["passes"]) >= _FEWEST_RULES, "axe-core has looked")
    return [
        f"{'! ' if each['impact'] in _GRAVE else ''}{each['impact']} {each['id']} ({len(each['nodes'])}): "
        f"{each['help']}, such as {each['nodes'][0]['html'][:160]}"
        for each in told["violations"]
    ]


def _fits(seat: Seat) -> bool:
    """Whether nothing is to be scrolled sideways."""
    return bool(seat.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def grave(findings: list[str]) -> list[str]:
    """Those that nobody may leave."""
    return [finding for finding in findings if ": ! " in finding]
