"""Whatever is thrown at the parsers that face strangers is refused in one of their own ways, or means what it says."""

import json
from base64 import b64encode
from ipaddress import ip_address
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.cli.receiving import signature_fault
from service.domain import signing, urls
from service.domain.errors import Invalid, NotJson, TickRefused
from service.domain.job import JobConfig
from service.flow.egress import _target
from service.web import bodies, callers
from service.web.callers import Admitted
from service.web.knocking import Tick

SECRET = b"a tick secret of the junk tests"
JOB = JobConfig(name="j", source="tick", secrets=(SECRET,), event_type="a.b")
REFUSALS = (NotJson, Invalid, TickRefused)
MODEST = settings(max_examples=100, deadline=None, derandomize=True, database=None)

_CHARACTERS = st.characters(codec="utf-8")
TEXTS = st.text(_CHARACTERS, max_size=60) | st.text("0123456789-:TZ+.tz", max_size=30)
MEMBERS = st.dictionaries(
    st.sampled_from(["runId", "cutoffIso", "signature", "runid", "x"]),
    st.none() | st.booleans() | st.integers() | TEXTS | st.lists(TEXTS, max_size=2),
)
BODIES = st.binary(max_size=80) | MEMBERS.map(lambda members: json.dumps(members).encode())


def admitted(raw: bytes) -> Admitted | None:
    try:
        return callers._signed(JOB, JOB.name, raw)
    except REFUSALS:
        return None


@MODEST
@given(BODIES)
def test_no_junk_is_a_tick(raw: bytes) -> None:
    assert admitted(raw) is None


@MODEST
@given(run_id=TEXTS, cutoff=TEXTS, ascii_=st.booleans())
@example(run_id="r1", cutoff="2026-11-30T02:00:00Z", ascii_=True)
def test_what_is_signed_is_let_in_and_means_exactly_that_or_is_invalid(run_id: str, cutoff: str, ascii_: bool) -> None:
    tick = {"runId": run_id, "cutoffIso": cutoff, "signature": signing.tick_signature(SECRET, run_id, cutoff)}
    try:
        caller = callers._signed(JOB, JOB.name, json.dumps(tick, ensure_ascii=ascii_).encode())
        read = bodies.validate(Tick, caller.members)
    except Invalid:
        return
    assert read.run_id == run_id
    assert read.cutoff_iso.utcoffset() is not None


@MODEST
@given(TEXTS, TEXTS, st.sampled_from(["runId", "cutoffIso"]), TEXTS)
def test_a_signature_is_good_for_no_other_words(run_id: str, cutoff: str, member: str, other: str) -> None:
    tick = {"runId": run_id, "cutoffIso": cutoff, "signature": signing.tick_signature(SECRET, run_id, cutoff)}
    changed = tick | {member: other}
    same = f"{changed['runId']}.{changed['cutoffIso']}" == f"{run_id}.{cutoff}"
    assert same or admitted(json.dumps(changed).encode()) is None


HOSTS = (
    st.ip_addresses().map(lambda address: f"[{address}]" if address.version == 6 else str(address))
    | st.integers(0, 2**32 - 1).map(str)
    | st.from_regex(r"(0x)?[0-9a-f]{1,9}(\.(0x)?[0-9a-f]{1,4}){0,3}\.?", fullmatch=True)
    | st.text("abc0.-_xn:[]%éß。１", max_size=20)
)
URLS = st.text(_CHARACTERS, max_size=60) | st.builds(
    "{}://{}{}{}".format,
    st.sampled_from(["http", "https", "HTTPS", "ftp"]),
    HOSTS,
    st.sampled_from(["", ":80", ":0", ":99999", "@evil.example", "\\", "#"]),
    st.text("/?a%\\ .@#", max_size=8),
)


@settings(MODEST, max_examples=300)
@given(URLS)
@example("http://2130706433/")
@example("http://0x7f.1/")
@example("http://127.0.0.1:1/")
@example("http://１27.0.0.1/")
def test_a_url_is_refused_or_leads_where_it_says(url: str) -> None:
    try:
        target = _target(url)
    except ValueError:
        return
    written = urls.written_host(url)
    assert target.port > 0
    assert "@" not in target.origin
    bare = urls.literal(written)
    assert target.literal == (bare is not None)
    if target.literal and bare is not None:
        assert ip_address(target.host) == ip_address(bare)


@MODEST
@given(st.text(max_size=100) | st.binary(max_size=70).map(lambda key: f"whsec_{b64encode(key).decode()}"))
def test_a_secret_is_read_or_refused_without_being_repeated(written: str) -> None:
    try:
        key = signing.decode_secret(written)
    except ValueError as refused:
        told = str(refused)
    else:
        told = ""
        assert signing.new_secret(key) == written
    assert len(written) < 8 or written not in told


_HEADERS: Any = st.fixed_dictionaries(
    {},
    optional={
        "webhook-id": st.text(_CHARACTERS, max_size=20),
        "webhook-timestamp": st.text(max_size=25) | st.integers().map(str),
        "webhook-signature": st.text(max_size=80) | st.binary(max_size=40).map(lambda b: f"v1,{b64encode(b).decode()}"),
    },
)


@MODEST
@given(_HEADERS, st.binary(max_size=40))
def test_no_junk_is_the_signature_of_a_webhook(headers: dict[str, str], body: bytes) -> None:
    assert signature_fault(headers, body, [b"s" * 32])
