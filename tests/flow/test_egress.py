"""The guard: nothing but a vetted address is ever dialled, and vetting costs next to nothing."""

import asyncio
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest
from pyreqwest.client import Client

from service.domain.model import Outcome
from service.flow import egress as egress_module
from service.flow.egress import Blocked, Egress, Target, check_url
from service.flow.resolver import Unready, Unresolved
from service.flow.send import send
from tests.flow.egress_parts import Names, Neighbour, loopback, names, request, still_open
from tests.polling import eventually
from tests.receivers import HANG, Receiver, answer

SPELLINGS = [
    "http://127.0.0.1:{port}/",
    "http://2130706433:{port}/",
    "http://017700000001:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://0x7f.1:{port}/",
    "http://0x7f000001:{port}/",
    "http://127.1:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/",
    "http://127。0。0。1:{port}/",
    "http://%31%32%37.0.0.1:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::1]:{port}/",
    "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://0:{port}/",
    "http://0.0.0.0:{port}/",
    "http://[::]:{port}/",
    "http://user@127.0.0.1:{port}/",
    "http://public.test\\@127.0.0.1:{port}/",
    "http://public.test#@127.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST.:{port}/",
    "http://[fe80::1%25lo]:{port}/",
]

ELSEWHERE = [
    "http://169.254.169.254/latest/meta-data/",
    "http://[0:0:0:0:0:ffff:a9fe:a9fe]/",
    "http://0251.254.169.254/",
    "http://2852039166/",
    "http://[fd00:ec2::254]/",
    "http://168.63.129.16/",
    "http://100.100.100.200/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[fe80::1]/",
    "http://[fc00::1]/",
    "http://[ff02::1]/",
    "http://[2002:7f00:1::1]/",
    "http://[2001:0:7f00:1::1]/",
]

BAD_NAMES = {
    "private": ["10.0.0.5"],
    "mapped": ["::ffff:10.0.0.5"],
    "metadata": ["169.254.169.254"],
    "loopback": ["127.0.0.1"],
    "loopback6": ["::1"],
    "mixed": ["93.184.216.34", "192.168.1.1"],
    "mixed6": ["93.184.216.34", "fd00::1"],
    "zoned": ["fe80::1%lo"],
    "nat64": ["64:ff9b::7f00:1"],
    "nonsense": ["not an address"],
}


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """No client may be made: what does not exist cannot dial. Gives the ones that were asked for all the same."""
    made: list[Any] = []
    monkeypatch.setattr(egress_module, "_build", lambda *wanted: made.append(wanted))
    yield made
    assert made == []


@pytest.mark.parametrize("url", SPELLINGS)
async def test_this_machine_is_not_dialled_in_any_spelling(url: str) -> None:
    async with Receiver() as four, Receiver(host="::1") as six:
        for receiver in (four, six):
            sent = await send(Egress(), request(url.format(port=receiver.port)))
            assert sent.outcome is Outcome.BLOCKED
            assert 0 < len(sent.detail or "") <= 200
            assert receiver.connections == 0


@pytest.mark.parametrize("url", ELSEWHERE)
async def test_no_private_or_metadata_address_is_dialled(url: str, unbuilt: list[Any]) -> None:
    assert (await send(Egress(), request(url))).outcome is Outcome.BLOCKED
    with pytest.raises(Blocked):
        await Egress().vet(url)
    assert unbuilt == []


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_name_of_which_any_address_is_refused_is_not_dialled(name: str, unbuilt: list[Any]) -> None:
    resolve = names(**{name: BAD_NAMES[name]})
    egress = Egress(resolve=resolve)
    assert (await send(egress, request(f"https://{name}.test/"))).outcome is Outcome.BLOCKED
    with pytest.raises(Blocked):
        await egress.vet(f"https://{name}.test/")
    assert unbuilt == []


@pytest.mark.parametrize("url", ["http://169.254.169.254/", "http://100.100.100.200/", "http://meta.test/"])
async def test_allowing_everything_does_not_open_the_metadata_service(url: str, unbuilt: list[Any]) -> None:
    everything = [ip_network("0.0.0.0/0"), ip_network("::/0")]
    egress = Egress(everything, (), names(meta=["169.254.169.254"]))
    assert (await send(egress, request(url))).outcome is Outcome.BLOCKED
    assert unbuilt == []


async def test_a_denied_network_is_not_dialled_though_it_is_allowed() -> None:
    async with Receiver() as receiver:
        egress = Egress([ip_network("127.0.0.0/8")], [ip_network("127.0.0.1/32")])
        assert (await send(egress, request(receiver.url))).outcome is Outcome.BLOCKED
        assert receiver.connections == 0


async def test_a_guard_that_fails_fails_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the guard is broken")

    monkeypatch.setattr(egress_module, "refusal", broken)
    async with Receiver() as receiver:
        with pytest.raises(RuntimeError):
            await send(loopback(), request(receiver.url))
        assert receiver.connections == 0


async def test_a_name_whose_answer_turns_bad_after_vetting_is_not_dialled() -> None:
    """127.0.0.1 plays the public address and 127.0.0.2 the private one: only the former is allowed."""
    async with Receiver() as public, Neighbour(beside=public) as private:
        resolve = Names({"rebinds.test": [["127.0.0.1"], ["127.0.0.1"], ["127.0.0.2"]]})
        egress = Egress([ip_network("127.0.0.1/32")], (), resolve, ttl_seconds=0)
        url = f"http://rebinds.test:{public.port}/"
        await egress.vet(url)
        assert (await send(egress, request(url))).outcome is Outcome.DELIVERED
        for _ in range(3):
            assert (await send(egress, request(url))).outcome is Outcome.BLOCKED
        assert (len(public.requests), private.connections) == (1, 0)


async def test_within_its_time_a_vetted_name_is_dialled_where_it_was_vetted() -> None:
    async with Receiver() as public, Neighbour(beside=public) as private:
        resolve = Names({"rebinds.test": [["127.0.0.1"], ["127.0.0.2"]]})
        egress = Egress([ip_network("127.0.0.1/32")], (), resolve, ttl_seconds=3600)
        for _ in range(3):
            sent = await send(egress, request(f"http://rebinds.test:{public.port}/"))
            assert sent.outcome is Outcome.DELIVERED
        assert (resolve.asked, private.connections) == (["rebinds.test"], 0)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed_wherever_it_leads(status: int) -> None:
    async with Receiver() as inside:
        for location in (
            f"http://127.0.0.1:{inside.port}/",
            f"//127.0.0.1:{inside.port}/",
            f"http://0x7f.1:{inside.port}",
        ):
            async with Receiver(answer(status, headers={"location": location})) as receiver:
                sent = await send(loopback(), request(receiver.url))
                assert (sent.outcome, sent.status) == (Outcome.REJECTED, status)
                assert len(receiver.requests) == 1
        assert inside.connections == 0


async def test_proxies_and_netrc_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / ".netrc").write_text("machine 127.0.0.1 login eve password s3cret\ndefault login eve password s3cret\n")
    async with Receiver() as proxy, Receiver() as receiver:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            for spelled in (name, name.lower()):
                monkeypatch.setenv(spelled, proxy.url)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("NETRC", str(home / ".netrc"))
        sent = await send(loopback(names(hooks=["127.0.0.1"])), request(f"http://hooks.test:{receiver.port}/"))
        literal = await send(loopback(), request(receiver.url))
        assert (sent.outcome, literal.outcome) == (Outcome.DELIVERED, Outcome.DELIVERED)
        assert proxy.connections == 0
        assert [one.header("authorization") for one in receiver.requests] == [None, None]


@pytest.mark.parametrize("spelled", ["Hooks.TEST", "hooks.test.", "HOOKS.test."])
async def test_case_and_a_final_dot_do_not_lead_round_the_pin(spelled: str) -> None:
    resolve = names(hooks=["127.0.0.1"])
    async with Receiver() as receiver:
        sent = await send(loopback(resolve), request(f"http://{spelled}:{receiver.port}/x"))
        assert sent.outcome is Outcome.DELIVERED
        assert receiver.requests[0].header("host") == f"hooks.test:{receiver.port}"
        assert resolve.asked == ["hooks.test"]


URLS = {
    "https://hooks.example/": None,
    "http://hooks.example:8080/a/b?c=d": None,
    "https://1.1.1.1/": None,
    "https://[2606:4700::1111]:8443/": None,
    "https://xn--mnchen-3ya.example/": None,
    "https://münchen.example/": None,
    "https://my_service/": None,
    "http://2130706433/": "usual form",
    "http://0x7f.1/": "usual form",
    "http://①②⑦.⓪.⓪.①/": "usual form",
    "http://[fe80::1%25eth0]/": "valid host",
    "http://[::1/": "valid host",
    "http://256.1.1.1/": "valid host",
    "http://hooks.example:99999/": "valid host",
    "http://hooks.example:http/": "valid host",
    "http://hooks.example:0/": "port 0",
    "http://a..b/": "host name",
    f"http://{'a' * 64}.example/": "host name",
    "http://*.example/": "host name",
    "http://user:pass@hooks.example/": "user name",
    "ftp://hooks.example/": "begin with",
    "": "begin with",
    "http://\ud800/": "control characters",
}


@pytest.mark.parametrize(("url", "told"), URLS.items(), ids=range(len(URLS)))
async def test_a_url_is_refused_by_what_is_wrong_with_it_and_never_repeated(url: str, told: str | None) -> None:
    if told is None:
        check_url(url)
        return
    with pytest.raises(ValueError, match=told) as refused:
        check_url(url)
    assert not url or url not in str(refused.value)
    with pytest.raises(Blocked, match=told):
        await Egress().vet(url)


async def test_a_name_that_does_not_resolve_may_be_registered() -> None:
    await Egress(resolve=Names({})).vet("https://not-yet.test/")
    await Egress(resolve=Names({"x.test": [Unready("dns: busy")]})).vet("https://x.test/")


async def test_many_at_once_cause_one_look_up_and_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = egress_module._build

    def counted(target: Target, address: str, *rest: Any) -> Client:
        built.append(address)
        return build(target, address, *rest)

    monkeypatch.setattr(egress_module, "_build", counted)
    resolve = names(hooks=["127.0.0.1"])
    resolve.hold = asyncio.Event()
    async with Receiver() as receiver:
        egress = loopback(resolve)
        tasks = [asyncio.create_task(send(egress, request(f"http://hooks.test:{receiver.port}/"))) for _ in range(20)]
        await eventually(lambda: resolve.asked)
        tasks[0].cancel()
        resolve.hold.set()
        sent = await asyncio.gather(*tasks[1:])
        assert {one.outcome for one in sent} == {Outcome.DELIVERED}
        assert tasks[0].cancelled()
        assert (resolve.asked, built) == (["hooks.test"], ["127.0.0.1"])


async def test_connections_are_kept_over_look_ups_while_the_address_stays() -> None:
    resolve = Names({"hooks.test": [["127.0.0.1"], ["127.0.0.2", "127.0.0.1"], ["127.0.0.1"]]})
    async with Receiver() as receiver:
        egress = loopback(resolve, ttl_seconds=0)
        for _ in range(4):
            await send(egress, request(f"http://hooks.test:{receiver.port}/"))
        assert len(resolve.asked) == 4
        assert (len(receiver.requests), receiver.connections) == (4, 1)


async def test_when_the_address_moves_the_new_one_is_dialled_and_the_old_connection_let_go() -> None:
    resolve = Names({"hooks.test": [["127.0.0.1"], ["127.0.0.2"]]})
    async with Receiver() as before, Neighbour(beside=before) as after:
        egress = loopback(resolve, ttl_seconds=0)
        for _ in range(3):
            assert (await send(egress, request(f"http://hooks.test:{before.port}/"))).outcome is Outcome.DELIVERED
        assert (len(before.requests), len(after.requests)) == (1, 2)
        await eventually(lambda: not still_open(before))


async def test_after_a_refused_connection_the_next_attempt_dials_the_next_address() -> None:
    async with Receiver() as receiver:
        egress = loopback(names(hooks=["127.0.0.2", "127.0.0.1"]))
        outcomes = [(await send(egress, request(f"http://hooks.test:{receiver.port}/"))).outcome for _ in range(3)]
        assert outcomes == [Outcome.UNREACHABLE, Outcome.DELIVERED, Outcome.DELIVERED]


async def test_a_failed_look_up_is_not_repeated_at_once() -> None:
    resolve = Names({"hooks.test": [Unresolved("dns: no such name"), ["127.0.0.1"]]})
    egress = loopback(resolve)
    for _ in range(5):
        sent = await send(egress, request("http://hooks.test:9/"))
        assert (sent.outcome, sent.detail) == (Outcome.UNREACHABLE, "dns: no such name")
    assert len(resolve.asked) == 1


async def test_an_empty_answer_is_no_address() -> None:
    sent = await send(loopback(names(hooks=[])), request("http://hooks.test/"))
    assert sent.outcome is Outcome.UNREACHABLE


async def test_no_more_destinations_are_kept_than_agreed() -> None:
    resolve = names(**{f"h{number}": ["127.0.0.1"] for number in range(6)})
    egress = loopback(resolve, origins=3)
    async with Receiver() as receiver:
        for _ in range(2):
            for number in range(6):
                await send(egress, request(f"http://h{number}.test:{receiver.port}/"))
        assert len(egress._pins) == 3
        assert len(receiver.requests) == 12
        await eventually(lambda: still_open(receiver) <= 3)


async def test_hosts_written_as_addresses_share_one_client() -> None:
    egress = loopback()
    async with Receiver() as one, Receiver() as other:
        for receiver in (one, other, one):
            assert (await send(egress, request(receiver.url))).outcome is Outcome.DELIVERED
        assert len(egress._unpinned) == 1
        assert (one.connections, other.connections) == (1, 1)


async def test_a_client_that_cannot_be_built_is_our_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def unready(*_: object) -> None:
        raise Unready("this machine cannot open TLS connections")

    monkeypatch.setattr(egress_module, "_build", unready)
    sent = await send(loopback(), request("http://127.0.0.1:9/"))
    assert (sent.outcome, sent.detail) == (Outcome.INTERNAL, "this machine cannot open TLS connections")


async def test_closing_lets_requests_in_flight_end_and_idle_connections_go() -> None:
    hold = asyncio.Event()
    async with Receiver(answer(200), answer(200, hold=hold)) as receiver:
        egress = loopback()
        await send(egress, request(receiver.url))
        task = asyncio.create_task(send(egress, request(receiver.url)))
        await receiver.received(2)
        await egress.close()
        hold.set()
        assert (await task).outcome is Outcome.DELIVERED
        await eventually(lambda: not still_open(receiver))


async def test_closing_does_not_wait_for_a_hanging_look_up() -> None:
    resolve = Names({}, hold=asyncio.Event())
    egress = loopback(resolve)
    task = asyncio.create_task(send(egress, request("http://hooks.test/")))
    await eventually(lambda: resolve.asked)
    await egress.close()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_hanging_receiver_holds_up_nobody_of_the_same_origin() -> None:
    async with Receiver(*[HANG] * 50) as receiver:
        egress = loopback()
        hanging = [asyncio.create_task(send(egress, request(receiver.url))) for _ in range(50)]
        await receiver.received(50)
        assert (await send(egress, request(receiver.url))).outcome is Outcome.DELIVERED
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        assert (await send(egress, request(receiver.url))).outcome is Outcome.DELIVERED
