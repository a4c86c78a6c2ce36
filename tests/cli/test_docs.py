"""The pages agree with the code where that can be enumerated, and their links lead somewhere."""

import re
from pathlib import Path

import pytest

from service.domain.model import DeliveryState, Outcome
from service.domain.retry import UNCOUNTED
from tests.cli.process import ROOT

PAGES = [ROOT / "README.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").glob("*.md"))]
OUTCOMES = (ROOT / "docs/outcomes.md").read_text(encoding="utf-8")


def test_the_outcome_table_has_every_outcome_and_says_which_ones_count() -> None:
    counts: dict[str, str] = {}
    for names, _, _, counted in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \| (yes|no) \|$", OUTCOMES, re.MULTILINE):
        counts.update(dict.fromkeys(re.findall(r"`(\w+)`", names), counted))
    assert counts == {outcome.value: "no" if outcome in UNCOUNTED else "yes" for outcome in Outcome}


def test_the_table_of_ends_has_every_terminal_state() -> None:
    ends = OUTCOMES.split("## Where a delivery can end")[1].split("##")[0]
    states = set(re.findall(r"^\| `(\w+)` \|", ends, re.MULTILINE))
    assert states == {state.value for state in DeliveryState} - {"pending", "leased"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
