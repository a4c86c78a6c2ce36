"""The charts: true to their numbers, readable without eyes, and nothing in them is markup from outside."""

from datetime import UTC, datetime, timedelta

from service.web.console import charts, words
from service.web.console.charts import Part, Stack

NOW = datetime(2026, 11, 30, 2, tzinfo=UTC)


def test_bars_stand_on_one_scale_and_tell_their_numbers() -> None:
    drawn = charts.bars(
        "attempts", [Stack("02:00", [Part("sent", 30, "good"), Part("<b>", 10, "bad")]), Stack("02:01", [])]
    )
    assert 'class="f-good" x="0" y="16.0" width="8" height="48.0"' in drawn
    assert 'class="f-bad" x="0" y="0.0" width="8" height="16.0"' in drawn
    assert "<title>02:00: 30 sent, 10 &lt;b&gt;</title>" in drawn
    assert "<title>02:01: nothing</title>" in drawn
    assert charts.bars("none", []).startswith('<svg class="chart bars" role="img" aria-label="none"')


def test_a_share_fills_the_whole_with_what_there_is() -> None:
    drawn = charts.share([Part("delivered", 3, "good"), Part("cancelled", 0, "quiet"), Part("pending", 1, "wait")])
    assert 'aria-label="3 delivered, 1 pending"' in drawn
    assert 'class="f-good" x="0.00" width="75.00"' in drawn
    assert 'class="f-wait" x="75.00" width="25.00"' in drawn
    assert "cancelled" not in drawn
    assert 'aria-label="nothing yet"' in charts.share([])


def test_a_line_ends_at_the_top_where_its_value_is_the_largest() -> None:
    assert 'points="0,62.0 10,2.0"' in charts.line("pace", [0, 5])
    assert charts.line("pace", []).count("<polyline") == 1


def test_times_are_told_as_people_do() -> None:
    told = [words.ago(NOW - timedelta(seconds=each), NOW).split(">")[1].split("<")[0] for each in (0, 59, 7300, -130)]
    assert told == ["now", "59 s ago", "2 h ago", "in 2 min"]
    assert words.ago(datetime.max, NOW) == words.stamp(None) == "–"  # noqa: DTZ901 - so the driver gives infinity
    assert [words.duration(each) for each in (None, 0, 0.25, 61, 90_000)] == [
        "–",
        "0 s",
        "250 ms",
        "1 min 1 s",
        "1 d 1 h",
    ]
