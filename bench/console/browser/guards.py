"""What must not happen at the console: twice, unasked, without the right to, or because a receiver said so."""

from playwright.sync_api import Browser

from bench.console.browser.seat import Seat, must, seated
from bench.console.scene import Scene

FORBIDDEN = 403
READABLE = (
    "/console/",
    "/console/runs",
    "/console/jobs",
    "/console/audit",
    "/console/deliveries",
    "/console/dead-letters",
    "/console/replays",
    "/console/replays/new",
    "/console/subscribers",
    "/console/subscribers/store-000",
)


def no_script_of_a_receiver(seat: Seat, scene: Scene) -> None:
    """What a receiver answered stands on the page as text, and nothing of it runs."""
    seat.open(f"/console/dead-letters?state=rejected&subscriberId={scene.hostile}")
    must("<script>alert(1)</script>" in seat.main_text(), "the kinds show the answer as text")
    seat.page.locator(".picks tbody th a").first.click()
    seat.page.locator(".story").wait_for()
    must("<script>alert(1)</script>" in seat.main_text(), "the delivery shows the answer as text")
    scripts = seat.page.evaluate("[...document.scripts].map(script => new URL(script.src).pathname)")
    must(scripts == ["/console/static/console.js"], f"only our script is on the page, not {scripts}")
    must(seat.page.locator("img").count() == 0, "no image of the answer is on the page")
    seat.open(f"/console/subscribers/{scene.hostile}")


def a_double_click_does_it_once(seat: Seat, scene: Scene, browser: Browser) -> None:
    """With our script, and without it, where the browser sends the form twice."""
    _test_twice(seat, "store-003")
    with seated(browser, seat.base, scripts=False) as plain:
        plain.sign_in(scene.admin_key)
        _test_twice(plain, "store-004")


def _test_twice(seat: Seat, subscriber: str) -> None:
    seat.open(f"/console/subscribers/{subscriber}")
    seat.page.locator("summary", has_text="Send a test").click()
    seat.page.get_by_role("button", name="Send it").dblclick()
    seat.page.get_by_role("heading", name="What happened").wait_for()
    seat.open(f"/console/deliveries?subscriberId={subscriber}&eventType=tocsin.test")
    sent = seat.page.locator(".rows tbody tr").count()
    must(sent == 1, f"a double click sent {sent} tests")


def no_form_without_its_token(seat: Seat, _: Scene) -> None:
    """A form that is not from a page of this session is refused on a page, and nothing is done."""
    seat.open("/console/subscribers/store-005")
    seat.page.evaluate("document.querySelectorAll('input[name=csrf]').forEach((field) => field.remove())")
    with seat.expecting(FORBIDDEN):
        seat.steer("Pause …", "Pause it", "by a forged form")
        seat.page.get_by_role("heading", name="This form is no longer good").wait_for()
    seat.open("/console/subscribers/store-005")
    must(seat.page.locator("summary", has_text="Pause …").count() == 1, "nothing was done")


def a_reader_reads(seat: Seat, scene: Scene, browser: Browser) -> None:
    """A key that may read sees no form but the one to sign out, and the server refuses one that is made up."""
    with seated(browser, seat.base) as reader:
        reader.sign_in(scene.reader_key)
        for path in READABLE:
            reader.open(path)
            posting = reader.page.locator("form[method=post]:not([action='/console/sign-out'])").count()
            must(posting == 0, f"{path} shows {posting} forms to a reader")
        fields = {
            name: reader.page.locator(f"input[name={name}]").first.get_attribute("value") or ""
            for name in ("csrf", "once")
        }
        answer = reader.page.request.post(
            f"{seat.base}/console/subscribers/store-000/pause", form={"reason": "because", **fields}, max_redirects=0
        )
        must(answer.status == FORBIDDEN, f"a reader's form was answered with {answer.status}")
        seat.odd.extend(reader.odd)


def it_works_without_scripts(seat: Seat, scene: Scene, browser: Browser) -> None:
    """Held and let go in a browser that runs no script at all."""
    with seated(browser, seat.base, scripts=False) as plain:
        plain.sign_in(scene.admin_key)
        plain.open("/console/subscribers/store-006")
        plain.steer("Pause …", "Pause it", "they deploy")
        plain.told("is paused")
        plain.steer("Resume …", "Resume it")
        plain.told("is active")
        plain.page.get_by_role("button", name="Sign out").click()
        plain.page.get_by_role("heading", name="Sign in").wait_for()
        plain.open("/console/")
        must("/sign-in" in plain.page.url, "whoever has signed out is asked again")
