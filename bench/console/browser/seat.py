"""Somebody at the console: a browser of its own that notices whatever should not happen on a page."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

DESKTOP, PHONE = (1360, 900), (390, 844)
PATIENCE_MS = 15_000
"""So long a page may take to show what it has to, its own refreshing included."""

_TELL_VIOLATIONS = """
    document.addEventListener("securitypolicyviolation", (event) =>
        console.error(`CSP violated: ${event.violatedDirective} ${event.blockedURI}`));
"""


class Unproved(Exception):
    """Something did not hold; the sentence says what."""


def must(held: object, what: str) -> None:
    """Say that this has to hold.

    Raises:
        Unproved: it does not.

    """
    if not held:
        raise Unproved(what)


@dataclass  # without slots: the library notes things on whoever's method it calls
class Seat:
    """A page of a browser of its own. `odd` is what should not have happened there."""

    page: Page
    base: str
    odd: list[str] = field(default_factory=list[str])
    _expected: set[int] = field(default_factory=set[int])

    def open(self, path: str, status: int = 200) -> None:
        """Go there.

        Raises:
            Unproved: the answer has another status.

        """
        with self.expecting(status):
            answer = self.page.goto(f"{self.base}{path}")
        found = answer.status if answer else 0
        must(found == status, f"{path} answered {found} instead of {status}")

    @contextmanager
    def expecting(self, status: int) -> Iterator[None]:
        """Answers with this status are no oddity meanwhile: the browser logs each that is an error."""
        self._expected.add(status)
        yield
        self._expected.discard(status)

    def sign_in(self, key: str) -> None:
        """Begin a session."""
        self.open("/console/sign-in")
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("heading", name="Overview").wait_for()

    def steer(self, opened: str, verb: str, reason: str | None = None) -> None:
        """Open what this button opens, give the reason there, and press the button of the form."""
        self.page.locator("summary", has_text=opened).click()
        form = self.page.locator("details[open] form")
        if reason is not None:
            form.get_by_label("Reason").fill(reason)
        form.get_by_role("button", name=verb).click()

    def told(self, words: str) -> None:
        """Wait for this notice."""
        self.page.locator("#notices .notice", has_text=words).wait_for()

    def hrefs(self, selector: str) -> list[str]:
        """Where these links lead, without the address of the console."""
        found: list[str] = self.page.locator(selector).evaluate_all("links => links.map(link => link.href)")
        return [href.removeprefix(self.base) for href in found]

    def main_text(self) -> str:
        """What stands on the page."""
        return str(self.page.locator("main").inner_text())

    def logged(self, said: ConsoleMessage) -> None:
        """What the browser logs."""
        if said.type in {"error", "warning"}:
            self.note(said.text)

    def asked(self, request: Request) -> None:
        """Only the console itself may be asked for anything."""
        if not request.url.startswith(f"{self.base}/console/"):
            self.note(f"asked {request.url}")

    def dialog(self, opened: Dialog) -> None:
        """What a script of somebody else's would open."""
        self.note(f"a script ran: {opened.message}")
        opened.dismiss()

    def note(self, message: str) -> None:
        """Remember an oddity, unless it is the browser's word for an expected status."""
        if not any(f"status of {status}" in message for status in self._expected):
            self.odd.append(f"{urlsplit(self.page.url).path}: {message}")


@contextmanager
def seated(browser: Browser, base: str, *, scripts: bool = True) -> Iterator[Seat]:
    """A browser of its own, gone afterwards."""
    context: BrowserContext = browser.new_context(
        viewport={"width": DESKTOP[0], "height": DESKTOP[1]}, java_script_enabled=scripts, reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(_TELL_VIOLATIONS)
    seat = Seat(context.new_page(), base)
    seat.page.on("console", seat.logged)
    seat.page.on("pageerror", lambda error: seat.note(f"a script failed: {error}"))
    seat.page.on("request", seat.asked)
    seat.page.on("dialog", seat.dialog)
    try:
        yield seat
    finally:
        context.close()
