"""Who may use the API: bearer tokens, login links and sessions, hosts and origins, and where it may listen."""

from __future__ import annotations

import re
import socket
import stat
import time
from pathlib import Path

import httpx
import pytest
from tests.api.helpers import Api, api_test
from tests.live import small

from headgate.errors import HeadgateError
from headgate.service.access import CODE, login_link, make_token, read_token, rotate_token, signed, token_file
from headgate.service.http_process import listen, parse_address


def test_the_token_is_its_owners_alone(tmp_path: Path) -> None:
    token = make_token(tmp_path)
    assert make_token(tmp_path) == read_token(tmp_path) == token
    path = token_file(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o640)
    with pytest.raises(HeadgateError, match="others than its owner can read"):
        read_token(tmp_path)


@pytest.mark.nats
def test_a_new_token_holds_before_the_old_one_ends_and_nothing_is_started_again(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        async with httpx.AsyncClient(base_url=api.address, trust_env=False) as other:

            async def answer(token: str) -> int:
                return (await other.get("/api/status", headers={"Authorization": f"Bearer {token}"})).status_code

            first = api.token
            second = rotate_token(tmp_path, 3600.0)
            assert second != first
            assert [await answer(token) for token in (first, second)] == [200, 200]
            third = rotate_token(tmp_path, 0.0)
            # The first was given an hour, and ends with a rotation that gives none: one token before is kept.
            assert [await answer(token) for token in (first, second, third)] == [401, 401, 200]
            link = await other.get(login_link("", second, time.time()))
            assert link.status_code == 403
            before = token_file(tmp_path).with_name("token-before")
            assert stat.S_IMODE(before.stat().st_mode) == 0o600
            fourth = rotate_token(tmp_path, 3600.0)
            before.write_bytes(before.read_bytes().replace(b"until", b"untii"))  # what is damaged does not hold
            assert [await answer(token) for token in (third, fourth)] == [401, 200]

    api_test(tmp_path, nats_url, small(), work)


@pytest.mark.nats
@pytest.mark.long
def test_who_is_let_in(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        async with httpx.AsyncClient(base_url=api.address, trust_env=False) as other:

            async def status(path: str, method: str = "GET", **headers: str) -> int:
                return (await other.request(method, path, headers=headers)).status_code

            paths = [path for path in (await api.json("GET", "/openapi.json"))["paths"] if path != "/healthz"]
            for path in [*paths, "/openapi.json", "/docs", "/static/index.js"]:
                answers = {await status(re.sub(r"{\w+}", "all", path), method) for method in ("GET", "POST", "DELETE")}
                assert answers <= {401, 405}, (path, answers)
                assert 401 in answers | {await status(re.sub(r"{\w+}", "all", path), "PATCH")}, path
            assert await status("/healthz") == 200
            assert await status("/api/status", Authorization="Bearer " + "x" * 43) == 401
            assert await status("/api/status", Authorization=f"Bearer {api.token}") == 200
            home = await other.get("/")
            assert (home.status_code, "headgate login" in home.text) == (401, True)
            # Another name for the same address, as in DNS rebinding, and pages of another origin.
            known = {"Authorization": f"Bearer {api.token}"}
            for wrong in ({"Host": "evil.example"}, {"Host": "127.0.0.1"}, {"Origin": "http://evil.example"}):
                assert await status("/api/status", **known, **wrong) == 403, wrong
                assert await status("/healthz", **wrong) == 403, wrong
            port = api.address.rsplit(":", 1)[1]
            assert await status("/api/status", **known, Host=f"localhost:{port}", Origin=api.address) == 200

    api_test(tmp_path, nats_url, small(all={"site": "leaf"}), work)


@pytest.mark.nats
def test_a_login_link_opens_a_session_once(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        async with httpx.AsyncClient(base_url=api.address, trust_env=False) as browser:
            link = login_link(api.address, api.token, time.time())
            assert api.token not in link
            opened = await browser.get(link)
            assert (opened.status_code, opened.headers["location"]) == (303, "/")
            cookie = opened.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert api.token not in opened.headers["set-cookie"]
            assert (await browser.get("/api/status")).status_code == 200
            for page in ("/", "/docs"):
                found = await browser.get(page)
                assert found.status_code == 200
                assert "default-src 'none'" in found.headers["content-security-policy"]
                for source in re.findall(r'(?:src|href)="([^"]+)"', found.text):
                    if source.startswith("#"):
                        continue  # a place on the page
                    assert source.startswith("/")
                    if source.startswith("/static/"):
                        assert (await browser.get(source)).status_code == 200
            # A change needs more than the cookie, which a browser sends along by itself.
            assert (await browser.delete("/api/subscriptions/all")).status_code == 403
            ended = await browser.delete("/api/subscriptions/all", headers={"Origin": api.address})
            assert ended.status_code == 200
        async with httpx.AsyncClient(base_url=api.address, trust_env=False) as thief:
            assert (await thief.get(link)).status_code == 403
            assert (await thief.get(f"/login?code={signed(api.token, CODE, time.time() - 1)}")).status_code == 403
            assert (await thief.get("/login?code=1.2.3")).status_code == 403

    api_test(tmp_path, nats_url, small(all={"site": "leaf"}), work)


@pytest.mark.parametrize("text", ["0.0.0.0:80", "8080", "host.example:80", "[::]:1", "127.0.0.1:99999", "127.0.0.1:"])
def test_it_listens_on_this_machine_only(text: str) -> None:
    with pytest.raises(HeadgateError):
        parse_address(text)


def test_a_taken_port_is_left_alone() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HeadgateError, match=r"address already in use.*--no-http"):
            listen(f"127.0.0.1:{port}")
    with listen(None) as first, listen(None) as second:
        assert first.getsockname() != second.getsockname()
