"""The page of guarantees names tests that are there and figures that were measured."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[a-z_/]+\.py)::(test_[a-z0-9_]+)`", PAGE)


def test_every_test_that_is_named_is_there() -> None:
    assert len(NAMED) > 30
    for path, name in NAMED:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), name


def test_every_promise_names_a_test_that_breaks_it_on_purpose() -> None:
    promises = [line for line in PAGE.split("## Mutants")[0].splitlines() if line.startswith("| ")]
    rows = [line for line in promises if not line.startswith(("| promise", "| ---"))]
    assert rows
    assert [row for row in rows if "::test_" not in row] == []


def test_every_figure_is_that_of_the_benchmarks() -> None:
    figures = re.findall(r"\| ([^|]+): ([0-9,.]+) ([^ |]+) \|$", PAGE, re.MULTILINE)
    assert figures
    for name, value, unit in figures:
        assert f"| {name} | {value} | {unit} |" in BENCHMARKS, name
