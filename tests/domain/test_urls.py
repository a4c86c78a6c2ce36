"""URLs of webhooks: what their text alone gives away."""

import pytest

from service.domain import urls

FAULTS = {
    "https://hooks.example/x?y=z": None,
    "HTTP://hooks.example": None,
    "http://münchen.example/é": None,
    "": "begin with",
    "hooks.example/x": "begin with",
    "//hooks.example/x": "begin with",
    "ftp://hooks.example/x": "begin with",
    "file:///etc/passwd": "begin with",
    "javascript:alert(1)": "begin with",
    "https:hooks.example": "begin with",
    "https:/hooks.example": "begin with",
    "https:///hooks.example": "begin with",
    "https://": "begin with",
    "https://?x": "begin with",
    "http+unix://sock/x": "begin with",
    " https://hooks.example": "spaces",
    "https://hooks.example/a b": "spaces",
    "https://hooks.example\t/": "spaces",
    "ht\ntps://hooks.example/": "spaces",
    "https://hooks.example/\x00": "spaces",
    "https://hooks.example/\ud800": "spaces",
    "https://hooks.example/\u2028": "spaces",
    "https:\\\\hooks.example\\x": "backslashes",
    "https://good.example\\@evil.example/": "backslashes",
    "https://user@hooks.example/": "user name",
    "https://user:password@hooks.example/": "user name",
    "https://@hooks.example/": "user name",
    "https://hooks.example/#x": "fragment",
    "https://hooks.example#@evil.example/": "fragment",
    "https://hooks.example/" + "x" * 2048: "2048 bytes",
    "https://hooks.example/" + "é" * 1020: "2048 bytes",
}


@pytest.mark.parametrize(("url", "told"), FAULTS.items(), ids=range(len(FAULTS)))
def test_what_parsers_would_quietly_mend_is_refused(url: str, told: str | None) -> None:
    fault = urls.text_fault(url)
    assert (fault is None) if told is None else (fault is not None and told in fault)


WRITTEN = {
    "http://127.0.0.1:80/x": "127.0.0.1",
    "https://h:/": "h",
    "https://[::1]/": "[::1]",
    "https://[::1]:443": "[::1]",
    "https://Hooks.Example?x": "Hooks.Example",
}


@pytest.mark.parametrize(("url", "host"), WRITTEN.items())
def test_the_host_is_read_as_it_was_written(url: str, host: str) -> None:
    assert urls.written_host(url) == host


HOSTS = {
    ("hooks.example", "Hooks.Example"): True,
    ("hooks.example.", "hooks.example."): True,
    ("xn--mnchen-3ya.de", "münchen.de"): True,
    ("my_service", "my_service"): True,
    ("1.1.1.1", "1.1.1.1"): True,
    ("[2606:4700::1111]", "[2606:4700:0::1111]"): True,
    ("127.0.0.1", "2130706433"): False,
    ("127.0.0.1", "0x7f.1"): False,
    ("127.0.0.1", "127.0.0.1."): False,
    ("8.8.8.8", "010.8.8.8"): False,
    ("", ""): False,
    (".", "."): False,
    ("a..b", "a..b"): False,
    (".a", ".a"): False,
    ("a..", "a.."): False,
    ("*.example", "*.example"): False,
    ("a" * 64, "a" * 64): False,
    (".".join(["a" * 60] * 5), "long"): False,
}


@pytest.mark.parametrize(("host", "fine"), HOSTS.items(), ids=range(len(HOSTS)))
def test_a_host_is_a_name_or_an_address_in_its_usual_form(host: tuple[str, str], fine: bool) -> None:
    assert (urls.host_fault(*host) is None) is fine
