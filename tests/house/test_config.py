"""`tocsin.toml` is read strictly: what cannot be meant is refused at start-up."""

from pathlib import Path

import pytest

from service.config import configured_jobs, load_jobs, strays
from service.domain.errors import ConfigurationError
from service.settings import Settings

GOOD = """
[jobs."shipments.expire"]
source = "sql"
secrets = ["env:A_SECRET"]
event_type = "shipment.expired"
statement = "SELECT 1"
"""


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "a-secret-of-some-length")
    monkeypatch.setenv("B_SECRET", "b-secret-of-some-length")
    monkeypatch.setenv("SHORT_SECRET", "S3CRET")


def write(folder: Path, text: str) -> Path:
    path = folder / "tocsin.toml"
    path.write_text(text)
    return path


def test_a_job_is_read_with_its_secret_and_the_defaults(tmp_path: Path) -> None:
    (job,) = load_jobs(write(tmp_path, GOOD)).values()
    assert (job.name, job.source, job.event_type) == ("shipments.expire", "sql", "shipment.expired")
    assert job.secrets == (b"a-secret-of-some-length",)
    assert (job.page_size, job.statement_timeout_seconds) == (500, 30)
    assert (job.max_cutoff_ahead, job.max_cutoff_age) == (60, 604_800)
    assert "a-secret" not in repr(job)


def test_without_a_file_there_are_no_jobs(tmp_path: Path) -> None:
    assert load_jobs(tmp_path / "tocsin.toml") == {}


def test_a_file_that_somebody_named_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert configured_jobs(Settings()) == {}
    monkeypatch.setenv("TOCSIN_CONFIG", "")
    assert configured_jobs(Settings()) == {}
    monkeypatch.setenv("TOCSIN_CONFIG", str(tmp_path / "tosin.toml"))
    with pytest.raises(ConfigurationError, match=r"TOCSIN_CONFIG names .*tosin\.toml, which is not there"):
        configured_jobs(Settings())


def test_a_variable_that_is_no_setting_is_told_with_the_one_that_was_meant(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("env:A_SECRET", "env:TOCSIN_SHIPMENTS_SECRET"))
    environment = {
        "TOCSIN_PORT": "1",
        "tocsin_host": "h",
        "TOCSIN_URL": "u",
        "TOCSIN_API_KEY": "env:TOCSIN_MY_KEY",
        "TOCSIN_MY_KEY": "k",
        "TOCSIN_SHIPMENTS_SECRET": "s",
        "TOCSIN_SERVICE_HOST": "10.0.0.1",
        "TOCSIN_SERVICE_PORT_HTTP": "8080",
        "TOCSIN_PORT_8080_TCP_ADDR": "10.0.0.1",
        "TOCSIN_EGRES_ALLOW": "10.0.0.0/8",
        "TOCSIN_WORKERS": "3",
        "TOCSIN_ZZZ": "",
        "OTHER": "x",
    }
    assert strays(Settings(config=path), environment) == {
        "TOCSIN_EGRES_ALLOW": "TOCSIN_EGRESS_ALLOW",
        "TOCSIN_WORKERS": "TOCSIN_WORKER_CONCURRENCY",
        "TOCSIN_ZZZ": None,
    }


def job(name: str = "a", body: str = "", *, secrets: str = '["env:A_SECRET"]') -> str:
    return f'[jobs."{name}"]\nsource = "tick"\nsecrets = {secrets}\n{body}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jobs = 1", "jobs"),
        ("[jobs", "is not TOML"),
        ("[job.a]", "job: Extra inputs"),
        (job(body="pagesize = 5"), 'jobs."a".pagesize: Extra inputs'),
        (job(body="page_size = 0"), 'jobs."a".page_size'),
        (job(body="page_size = true"), 'jobs."a".page_size'),
        (job(body='page_size = "5"'), 'jobs."a".page_size'),
        (job(body='event_type = "no spaces"'), 'jobs."a".event_type: must be words'),
        (job(body='event_type = "tocsin.run.settled"'), "must not begin with tocsin."),
        (job(secrets="[]"), 'jobs."a".secrets'),
        (job(secrets='["env:NOT_SET"]'), "the environment variable NOT_SET is not set"),
        (job(secrets='["file:/not/there"]'), "the secret file /not/there cannot be read"),
        (job(secrets='["S3CRET-S3CRET-S3CRET"]'), 'jobs."a".secrets[0]: a secret must be given as'),
        (job(secrets='["env:SHORT_SECRET"]'), "shorter than 16 bytes"),
        (job("a") + job("b"), 'jobs."a" and jobs."b" have the same secret'),
        (job("Upper"), "the name of a job"),
        (job("a/b"), "the name of a job"),
        ('[jobs."a"]\nsecrets = ["env:A_SECRET"]', 'jobs."a".source'),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_jobs(write(tmp_path, text))
    assert said in caught.value.detail
    assert "tocsin.toml" in caught.value.detail
    assert "\n" not in caught.value.detail
    assert "S3CRET" not in caught.value.detail


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tocsin.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="it is not UTF-8"):
        load_jobs(tmp_path / "tocsin.toml")


def test_one_job_may_have_several_secrets(tmp_path: Path) -> None:
    text = job(secrets='["env:A_SECRET", "env:B_SECRET"]')
    assert len(load_jobs(write(tmp_path, text))["a"].secrets) == 2


def test_a_source_of_ones_own_gets_its_options_as_they_are(tmp_path: Path) -> None:
    loaded = load_jobs(write(tmp_path, job(body='[jobs.a.options]\ntable = "t"\ndepth = 3')))
    assert loaded["a"].options == {"table": "t", "depth": 3}
