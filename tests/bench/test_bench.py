"""The yardstick, the tables and the receiver of the benchmark, without measuring anything."""

import json
from unittest.mock import Mock

import pytest

from bench import page, table
from bench.figures import FIGURES, RATIOS, Ratio, p95
from bench.receiver import Connection, Tally

POST = b"POST /s/1 HTTP/1.1\r\nhost: x\r\nwebhook-id: %b\r\nContent-Length: 4\r\n\r\nbody"


def test_every_ratio_is_of_figures_that_are_measured() -> None:
    assert {name for ratio in RATIOS for name in (ratio.over, ratio.under)} <= set(FIGURES)


def test_p95_is_a_value_that_was_measured() -> None:
    assert p95([float(value) for value in range(1, 101)]) == 95
    assert p95([7.0]) == 7


@pytest.mark.parametrize(
    ("ratio", "value", "said"),
    [
        (Ratio("", "a", "b", 0.5), 0.5, "met"),
        (Ratio("", "a", "b", 0.5), 0.4, "missed by 0.10 (20%)"),
        (Ratio("", "a", "b", 1.5, at_most=True), 1.5, "met"),
        (Ratio("", "a", "b", 1.5, at_most=True), 1.8, "missed by 0.30 (20%)"),
    ],
)
def test_a_missed_bound_says_by_how_much(ratio: Ratio, value: float, said: str) -> None:
    assert table.verdict(ratio, value) == said


def test_a_ratio_is_of_medians_and_absent_without_its_figures() -> None:
    ratio = Ratio("", "a", "b", 1.0)
    assert ratio.value({"a": [1, 9, 2], "b": [4, 4, 100]}) == 0.5
    assert ratio.value({"a": [1]}) is None


def test_the_page_keeps_what_people_wrote_and_can_be_made_again() -> None:
    results = {"machine": {"cores": 2}} | table.results_of({"page-first": [1.0], "page-deep": [2.0]}, RATIOS)
    before = page.PAGE.read_text()
    made = page.page(before, results)
    assert "missed by 0.50 (33%)" in made
    assert made.startswith(before[:200])
    assert made.endswith(before[-200:])
    assert page.page(made, results) == made


def test_a_part_that_is_measured_alone_takes_the_place_of_its_own_figures() -> None:
    kept = {"machine": {}, "peers": {}} | table.results_of(
        {"page-first": [1.0], "page-deep": [2.0], "claim-empty": [4.0], "claim-full": [4.0]}, RATIOS
    )
    renewed = table.renewed(kept, {"machine": {}} | table.results_of({"page-first": [1.0], "page-deep": [1.0]}, RATIOS))
    assert [ratio["value"] for ratio in renewed["ratios"]] == [1.0, 1.0]
    assert renewed["figures"]["page-deep"]["samples"] == [1.0]
    assert renewed.keys() == kept.keys()


def test_the_page_shows_the_results_that_are_kept() -> None:
    shown = page.PAGE.read_text()
    assert page.page(shown, table.read(table.RESULTS)) == shown, "run `python -m bench.page`"


def test_peers_are_shown_with_their_versions_and_settings() -> None:
    peers = {"peers": {"pg-boss": "12.38.0, 2 × (batchSize 250)"}, "figures": {}, "ratios": []}
    assert "| pg-boss | 12.38.0, 2 × (batchSize 250) |" in page.page(page.PAGE.read_text(), {"peers": peers})


def test_the_lock_of_the_peers_names_no_registry() -> None:
    lock = json.loads((page.PAGE.parents[1] / "bench" / "peers" / "package-lock.json").read_text())
    assert all("resolved" not in package for package in lock["packages"].values())
    assert all(package["integrity"] for path, package in lock["packages"].items() if path)


@pytest.mark.parametrize("cut", [1, 7, 60, 85, 500])
def test_the_receiver_counts_requests_however_they_are_cut(cut: int) -> None:
    tally, transport = Tally(), Mock()
    connection = Connection(tally)
    connection.connection_made(transport)
    sent = (POST % b"a:1") + (POST % b"a:2") + b"GET /count HTTP/1.1\r\n\r\n"
    for begin in range(0, len(sent), cut):
        connection.data_received(sent[begin : begin + cut])
    written = b"".join(call.args[0] for call in transport.write.call_args_list)
    assert tally.ids == [b"a:1", b"a:2"]
    assert written.count(b"200 OK") == 3
    assert written.endswith(b"\r\n\r\n2 0")


def test_what_is_posted_to_the_silent_path_gets_no_answer() -> None:
    tally, transport = Tally(), Mock()
    connection = Connection(tally)
    connection.connection_made(transport)
    connection.data_received((POST % b"a:1").replace(b"/s/1", b"/hang"))
    assert tally.told(b"/count") == b"0 1"
    transport.write.assert_not_called()
