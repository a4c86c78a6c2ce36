"""The pages agree with the code where that can be enumerated, and their links lead somewhere."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from service.domain import subscriber as bounds
from service.domain.model import Answer, DeliveryState, HeldBy, Outcome, Policy
from service.domain.patience import in_words, mean_seconds
from service.domain.retry import Budget, settle
from service.flow import control_subscribers
from service.store import verdicts
from service.web.operational import BODIES
from service.web.subscriber_fields import SubscriberIn
from tests.cli.process import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "examples").rglob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
OUTCOMES = (ROOT / "docs/outcomes.md").read_text(encoding="utf-8")


def test_the_outcome_table_has_every_outcome_and_says_which_ones_count() -> None:
    counts: dict[str, str] = {}
    for names, _, _, counted in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \| (yes|no) \|$", OUTCOMES, re.MULTILINE):
        counts.update(dict.fromkeys(re.findall(r"`(\w+)`", names), counted))
    assert counts == {
        outcome.value: "yes" if settle(Answer(outcome), Policy(), Budget(0, 1e6), 0.5).counted else "no"
        for outcome in Outcome
    }


def test_the_table_of_ends_has_every_terminal_state() -> None:
    ends = OUTCOMES.split("## Where a delivery can end")[1].split("##")[0]
    states = set(re.findall(r"^\| `(\w+)` \|", ends, re.MULTILINE))
    assert states == {state.value for state in DeliveryState} - {"pending", "leased"}


def test_the_table_of_reasons_has_every_fixed_reason() -> None:
    written = OUTCOMES.split("## Why it ended")[1].split("\n## ")[0]
    attempts = [
        settle(Answer(outcome), Policy(idempotent=idempotent, max_attempts=most), Budget(0, left), 0.5).reason
        for outcome in Outcome
        for idempotent in (True, False)
        for most in (1, 8)
        for left in (0.0, 1e6)
    ]
    flow = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "service/flow").glob("*.py"))
    untried = re.findall(r'Settlement\([^)]*reason="([a-z-]+)"', flow)
    operators = [verdicts.RESOLVED, verdicts.CANCELLED, control_subscribers.DELETED]
    assert set(re.findall(r"^\| `([a-z_-]+)` \|", written, re.MULTILINE)) == {*attempts, *untried, *operators} - {None}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_reason_to_wait_is_explained() -> None:
    waits = OUTCOMES.split("## Why a delivery waits")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", waits, re.MULTILINE)) == {held.value for held in HeldBy}


def test_every_operational_event_stands_in_its_table_and_every_field_of_it_is_named() -> None:
    page = (ROOT / "docs/operational-events.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(tocsin\.[a-z.]+)` \|", page, re.MULTILINE)) == set(BODIES)
    for shape, _, _ in BODIES.values():
        data = shape.model_json_schema()["$defs"][f"{shape.__name__}Data"]["properties"]
        assert [name for name in data if f"`{name}`" not in page] == []


def test_the_table_of_patience_is_what_the_engine_does() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (.+?) \| (.+?) \|$", OUTCOMES, re.MULTILINE)
    assert rows[0][:3] == ("8", "1", "900"), "the defaults stand first"
    for attempts, base, cap, mean, most in rows:
        seconds = mean_seconds(
            Policy(max_attempts=int(attempts), backoff_base_seconds=float(base), backoff_cap_seconds=float(cap))
        )
        assert (mean, most) == (in_words(seconds), in_words(2 * seconds))


def test_every_field_of_a_subscriber_has_its_row_with_its_default_and_bounds() -> None:
    page = (ROOT / "docs/subscribers.md").read_text(encoding="utf-8").split("## Every field")[1].split("\n## ")[0]
    found = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|", page, re.MULTILINE)
    rows = {name: (default, bound) for name, default, bound in found}
    fields = {to_camel(name): field for name, field in SubscriberIn.model_fields.items() if name not in {"id", "state"}}
    assert set(fields) <= set(rows)
    for name in sorted(set(fields) - {"url", "secret", "ratePerSecond"}):
        assert _written(fields[name].default) in rows[name][0], name
    for name, bound in {
        "maxConcurrency": bounds.MAX_CONCURRENCY,
        "ratePerSecond": bounds.RATE_PER_SECOND,
        "maxAttempts": bounds.MAX_ATTEMPTS,
        "backoffBaseSeconds": bounds.BACKOFF_BASE_SECONDS,
        "deadlineSeconds": bounds.DEADLINE_SECONDS,
    }.items():
        assert f"{bound.least:.10g} to {bound.most:,.10g}" in rows[name][1], name


def _written(default: Any) -> str:
    """A default as the page writes it: a number with its thousands, anything else as JSON or as its name."""
    if isinstance(default, bool | list | dict):
        return json.dumps(default)
    return f"{default:,.10g}" if isinstance(default, int | float) else str(default)
