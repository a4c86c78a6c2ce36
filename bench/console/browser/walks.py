"""What an operator does at the console, done with the mouse and the keyboard."""

import re

from playwright.sync_api import expect

from bench.console.browser.seat import Seat, must
from bench.console.scene import Scene


def sign_in(seat: Seat, scene: Scene) -> None:
    """A wrong key is refused, a right one leads to the page that was asked for."""
    page = seat.page
    seat.open("/console/subscribers")
    with seat.expecting(401):
        page.get_by_label("API key").fill("a-key-that-nobody-has")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").wait_for()
    page.get_by_label("API key").fill(scene.admin_key)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Subscribers").wait_for()


def skip_link(seat: Seat, _: Scene) -> None:
    """The first stop of the keyboard leads past the navigation."""
    seat.open("/console/")
    seat.page.keyboard.press("Tab")
    seat.page.keyboard.press("Enter")
    must(seat.page.evaluate("document.activeElement.id") == "main", "the skip link leads to the content")


def replay_one(seat: Seat, scene: Scene) -> None:
    """One dead letter goes out again, and its page, which updates itself, says that it has arrived."""
    seat.open(f"/console/dead-letters?subscriberId={scene.mended}")
    seat.page.locator(".picks tbody th a").first.click()
    seat.steer("Replay …", "Replay it", "their disk is mended")
    seat.told("on its way again")
    seat.page.locator(".head .state", has_text="delivered").wait_for()
    must("their disk is mended" in seat.main_text(), "the story tells why it was replayed")


def replay_ticked(seat: Seat, scene: Scene) -> None:
    """Ticked ones are looked at first, then replayed together."""
    page = seat.page
    seat.open(f"/console/dead-letters?subscriberId={scene.mended}")
    for number in range(3):
        page.locator(".picks tbody input[type=checkbox]").nth(number).check()
    page.get_by_role("button", name="Review the ticked ones").click()
    page.get_by_role("heading", name="3 dead letters picked").wait_for()
    must("A dry run: nothing is done yet." in seat.main_text(), "the review says that it is a dry run")
    page.get_by_label("Reason").fill("their disk is mended")
    page.get_by_role("button", name="Do it").click()
    seat.told("going out again")


def replay_filtered(seat: Seat, scene: Scene) -> None:
    """All that match are counted first, then replayed at a rate; its page shows it to its end."""
    page = seat.page
    seat.open("/console/replays/new")
    page.locator("select[name=state]").select_option("exhausted")
    page.get_by_label("Subscriber", exact=True).fill(scene.mended)
    page.get_by_label("At most a second").fill("500")
    page.get_by_role("button", name="Count what matches").click()
    page.get_by_role("heading", name="What matches now").wait_for()
    page.get_by_label("Reason").fill("the rest of them")
    page.get_by_role("button", name="Replay them").click()
    seat.told("are being replayed")
    page.locator(".head .state", has_text="completed").wait_for()


def resolve_one(seat: Seat, _: Scene) -> None:
    """What may have arrived is settled by a person who has looked."""
    seat.open("/console/dead-letters?state=ambiguous")
    seat.page.locator(".picks tbody th a").first.click()
    seat.page.locator("summary", has_text="Resolve …").click()
    form = seat.page.locator("details[open] form")
    form.get_by_label("delivered: the receiver has it").check()
    form.get_by_label("Reason").fill("it stands in their ledger")
    form.get_by_role("button", name="Resolve it").click()
    seat.told("resolved as delivered")


def pause_and_resume(seat: Seat, scene: Scene) -> None:
    """A subscriber, a job and all dispatch are held and let go, each with its reason shown."""
    seat.open("/console/subscribers/store-001")
    seat.steer("Pause …", "Pause it", "they deploy")
    seat.told("is paused")
    must("It is paused: they deploy" in seat.main_text(), "the page says why it is paused")
    seat.steer("Resume …", "Resume it", "done")
    seat.told("is active")
    seat.open("/console/")
    seat.steer("Pause all dispatch", "Pause all dispatch", "the network is worked on")
    seat.page.locator("#banner", has_text="the network is worked on").wait_for()
    seat.steer("Resume dispatch", "Resume dispatch", "it is back")
    seat.told("Dispatch goes on")
    must(not seat.page.locator("#banner").inner_text().strip(), "the banner is gone")
    seat.open("/console/jobs")
    job = seat.page.locator("article", has=seat.page.get_by_role("heading", name=scene.job))
    job.locator("summary", has_text="Pause …").click()
    job.locator("details[open]").get_by_label("Reason").fill("a rehearsal")
    job.get_by_role("button", name="Pause", exact=True).click()
    must("Paused: a rehearsal" in seat.main_text(), "the job says why it is paused")
    seat.steer("Resume …", "Resume", "over")


def find_and_page(seat: Seat, scene: Scene) -> None:
    """A filter shows only what is like it, and its pages go on from one another and back."""
    page = seat.page
    seat.open("/console/deliveries")
    page.locator("select[name=state]").select_option("rejected")
    page.get_by_label("Subscriber", exact=True).fill(scene.hostile)
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile(r"state=rejected"))
    states = set(page.locator(".rows tbody .state").all_inner_texts())
    must(states == {"rejected"}, f"the filter shows only what is rejected, not {states}")
    first = seat.hrefs(".rows tbody th a")
    page.get_by_role("link", name="Older").click()
    expect(page).to_have_url(re.compile(r"cursor="))
    must(not set(first) & set(seat.hrefs(".rows tbody th a")), "the next page repeats none of the first")
    page.get_by_role("link", name="Newest").click()
    expect(page).not_to_have_url(re.compile(r"cursor="))
    must(seat.hrefs(".rows tbody th a") == first, "the way back leads to the first page")


def rotate(seat: Seat, _: Scene) -> None:
    """A new secret is shown once."""
    seat.open("/console/subscribers/store-002")
    seat.steer("New secret …", "Make a new secret")
    must(seat.page.locator(".once").inner_text().startswith("whsec_"), "the new secret is shown")
    seat.page.reload()
    must("whsec_" not in seat.page.content(), "it is shown once")


def mend_a_form(seat: Seat, _: Scene) -> None:
    """What was typed into a form that was refused stands there again."""
    seat.open("/console/jobs")
    seat.page.locator("summary", has_text="Start a run …").first.click()
    form = seat.page.locator("details[open] form")
    form.get_by_label("Run id").fill("by hand, with care")
    form.get_by_label("Cutoff").fill("tomorrow")
    form.get_by_label("Reason").fill("a long reason")
    form.get_by_role("button", name="Start the run").click()
    seat.told("cutoff must be")
    form = seat.page.locator("details[open] form")
    must(form.get_by_label("Run id").input_value() == "by hand, with care", "the run id is still there")
    must(form.get_by_label("Cutoff").input_value() == "tomorrow", "so is what was wrong")
    form.get_by_label("Cutoff").fill("2026-01-01T00:00:00Z")
    form.get_by_role("button", name="Start the run").click()


WALKS = (
    sign_in,
    skip_link,
    replay_one,
    replay_ticked,
    replay_filtered,
    resolve_one,
    pause_and_resume,
    find_and_page,
    rotate,
    mend_a_form,
)
