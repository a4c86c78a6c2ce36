"""A retention job's options say exactly what they mean, or start-up refuses with the mend."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.config import load_jobs
from service.domain.durations import parse_duration, written
from service.domain.errors import ConfigurationError
from service.domain.retention import boundaries, first_id, rules_of
from service.sources import load


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("A_SECRET", "B_SECRET"):
        monkeypatch.setenv(name, f"{name}-of-some-length")


def configured(folder: Path, options: str, other: str = "") -> None:
    """Read and load a file with a retention job and another one, as start-up does."""
    path = folder / "tocsin.toml"
    path.write_text(
        f'[jobs.retain]\nsource = "retention"\nsecrets = ["env:A_SECRET"]\n[jobs.retain.options]\n{options}\n'
        f'[jobs.other]\nsource = "outbox"\nsecrets = ["env:B_SECRET"]\n{other}\n'
    )
    load(load_jobs(path).values())


UNIT = 'must be text with a unit of s, m, h or d, such as "30d"'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("payloads_after = 30", f"options.payloads_after {UNIT}"),
        ('payloads_after = "30"', UNIT),
        ('payloads_after = "-1d"', UNIT),
        ('payloads_after = "1.5d"', UNIT),
        ('payloads_after = "30 d"', UNIT),
        ('payloads_after = "٣d"', UNIT),
        ('payloads_after = "0d"', 'options.payloads_after must be from "1h" to "36500d"'),
        ('payloads_after = "59m"', 'must be from "1h"'),
        ('keys_after = "36501d"', 'to "36500d"'),
        ('keys_after = "999999999999d"', 'to "36500d"'),
        ('payloads_after = "91d"', "options.payloads_after (91d) is longer than deliveries_after (90d)"),
        ('deliveries_after = "401d"', "options.deliveries_after (401d) is longer than keys_after (400d)"),
        ('payload_after = "1d"', "options.payload_after is not an option of retention: use payloads_after"),
        ("dry_run = 1", "options.dry_run must be true or false"),
        ("max_share = 0", "options.max_share must be a number above 0 and up to 1"),
        ("max_share = 50", "options.max_share must be"),
        ("max_share = true", "options.max_share must be"),
        ("max_share = nan", "options.max_share must be"),
        ('erase_tenants = "acme"', "options.erase_tenants must be a list of tenant ids"),
        ('erase_tenants = ["a b"]', "options.erase_tenants must be"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_mend(tmp_path: Path, options: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configured(tmp_path, options)
    assert said in caught.value.detail
    assert 'jobs."retain".options' in caught.value.detail


def test_runs_are_remembered_for_longer_than_any_job_accepts_their_ticks(tmp_path: Path) -> None:
    short = 'payloads_after = "1h"\ndeliveries_after = "1d"\nkeys_after = "7d"'
    with pytest.raises(ConfigurationError, match=r"keys_after must be longer than jobs.\"\w+\".max_cutoff_age \(7d\)"):
        configured(tmp_path, short)
    configured(tmp_path, short.replace('"7d"', '"8d"'))
    with pytest.raises(ConfigurationError, match=r"jobs.\"other\".max_cutoff_age \(20d\)"):
        configured(tmp_path, short.replace('"7d"', '"20d"'), "max_cutoff_age = 1728000")


def test_a_job_without_options_keeps_payloads_deliveries_and_keys_as_the_page_says(tmp_path: Path) -> None:
    path = tmp_path / "tocsin.toml"
    path.write_text('[jobs.retain]\nsource = "retention"\nsecrets = ["env:A_SECRET"]\n')
    rules = rules_of(load_jobs(path)["retain"])
    page = (Path(__file__).parents[2] / "docs" / "retention.md").read_text(encoding="utf-8")
    ages = {"payloads_after": rules.payloads_after, "deliveries_after": rules.deliveries_after}
    for name, seconds in (ages | {"keys_after": rules.keys_after}).items():
        assert f'| `{name}` | `"{written(seconds)}"` |' in page
    assert f"| `max_share` | {rules.max_share:g} |" in page
    now = datetime(2026, 11, 30, tzinfo=UTC)
    assert boundaries(rules, now + timedelta(days=9), now).payloads == now - timedelta(days=30)


def test_a_duration_is_read_as_it_is_written() -> None:
    assert [parse_duration(text) for text in ("90s", "90m", "36h", "400d")] == [90, 5_400, 129_600, 34_560_000]
    assert [written(seconds) for seconds in (90, 5_400, 129_600, 34_560_000, 0)] == ["90s", "90m", "36h", "400d", "0d"]
    assert str(first_id(datetime(1969, 1, 1, tzinfo=UTC))) == "00000000-0000-0000-0000-000000000000"
    assert str(first_id(datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC))).startswith("017f22e2-79b0")
