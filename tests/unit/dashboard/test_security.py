"""S12 and S13: who is let in, who may change what, and that nothing leaks."""

import asyncio
import logging
import stat
from pathlib import Path

import httpx
import pytest

from tests.unit.dashboard.scene import HOST, KEYRING, TOKENS, Scene, play
from trimtab.dashboard.api import ENDPOINTS, PREFIX
from trimtab.dashboard.guard import BODY_BYTES_MAX, HEADERS
from trimtab.dashboard.serving import DashboardPlan, hosts_of
from trimtab.dashboard.sessions import SESSION_MS, SESSIONS_MAX, Sessions, Tries
from trimtab.dashboard.tokens import FILE_NAME, Role, TokenFileError, load_keyring
from trimtab.errors import SettingsError
from trimtab.io.secrecy import new_secret

PAGE_POSTS = ("/group/reset", "/message/resend", "/dead-letters/replay", "/simulation")
API_POSTS = tuple(PREFIX + one.path for one in ENDPOINTS if one.method == "POST")
API_GETS = tuple(PREFIX + one.path for one in ENDPOINTS if one.method == "GET")
PAGES = (
    "/",
    "/group?name=billing",
    "/topics",
    "/topic?name=x",
    "/message?topic=x&id=y",
    "/producers",
    "/dead-letters",
    "/simulation",
    "/api",
)


def test_without_a_token_nothing_is_told() -> None:
    async def story(one: Scene) -> None:
        async with one.browser() as browser:
            for path in PAGES:
                answer = await browser.get(path)
                assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in"), path
                assert not answer.content
            for path in (*API_GETS, "/events", "/openapi.json"):
                answer = await browser.get(path)
                assert answer.status_code == 401, path
                assert "billing" not in answer.text
            for path in (*API_POSTS, *PAGE_POSTS):
                assert (await browser.post(path)).status_code == 401, path
            for wrong in ("Bearer wrong", "Bearer ", "Basic YWRtaW46YWRtaW4="):
                answer = await browser.get(f"{PREFIX}/overview", headers={"Authorization": wrong})
                assert answer.status_code == 401, wrong
            browser.cookies.set("trimtab_session", "guessed")
            assert (await browser.get(f"{PREFIX}/overview")).status_code == 401

    play(story)


def test_signing_in_and_out() -> None:
    async def story(one: Scene) -> None:
        async with one.browser() as browser:
            page = await browser.post("/sign-in", data={"token": "wrong"})
            assert page.status_code == 403
            assert "set-cookie" not in page.headers
            page = await browser.post("/sign-in", data={"token": f" {TOKENS[Role.VIEWER]} "})
            assert page.status_code == 303
            cookie = page.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert TOKENS[Role.VIEWER] not in page.headers["set-cookie"]
            assert (await browser.get("/")).status_code == 200
            secret = browser.cookies["trimtab_session"]
            assert (await browser.post("/sign-out")).status_code == 303
            browser.cookies.set("trimtab_session", secret)
            assert (await browser.get(f"{PREFIX}/overview")).status_code == 401
            headers = {"Authorization": f"Bearer {TOKENS[Role.OPERATOR]}"}
            browser.cookies.clear()
            assert (await browser.get(f"{PREFIX}/overview", headers=headers)).status_code == 200

    play(story)


def test_a_viewer_may_change_nothing() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_topic("orders", queues=1)
        await one.admin.create_group("billing")
        await one.send("orders", b"1")
        before = await one.admin.group_offsets("billing", "orders")
        async with one.browser(Role.VIEWER) as browser:
            csrf = one.csrf(browser)
            for path in API_POSTS:
                wish = {"name": "billing", "topic": "orders", "to": "end", "preview": False}
                answer = await browser.post(path, json=wish, headers={"X-CSRF-Token": csrf})
                assert answer.status_code == 403, path
                assert "viewer" in answer.json()["error"]
                answer = await browser.post(
                    path, json=wish, headers={"Authorization": f"Bearer {TOKENS[Role.VIEWER]}"}
                )
                assert answer.status_code == 403, path
            for path in PAGE_POSTS:
                form = {"csrf": csrf, "name": "billing", "topic": "orders", "to": "end", "apply": "yes"}
                assert (await browser.post(path, data=form)).status_code == 403, path
            for method in ("PUT", "DELETE", "PATCH"):
                assert (await browser.request(method, "/group/reset")).status_code == 403
        assert await one.admin.group_offsets("billing", "orders") == before

    play(story)


def test_foreign_hosts_and_pages_are_refused() -> None:
    async def story(one: Scene) -> None:
        async with one.browser(Role.OPERATOR) as browser:
            for host in (
                "evil.example",
                "evil.example:8765",
                "127.0.0.1",
                f"{HOST}.evil.example",
                "localhost:1",
                "",
            ):
                for path in ("/", "/sign-in", "/static/app.js", f"{PREFIX}/overview"):
                    answer = await browser.get(path, headers={"Host": host})
                    assert answer.status_code == 421, (host, path)
            for origin in (
                "http://evil.example",
                "null",
                f"https://{HOST}",
                "http://127.0.0.1:1",
                f"http://{HOST}.evil.example",
            ):
                for path in ("/", f"{PREFIX}/overview", "/events"):
                    assert (await browser.get(path, headers={"Origin": origin})).status_code == 403, (
                        origin,
                        path,
                    )
                for path in (*API_POSTS, *PAGE_POSTS, "/sign-in", "/sign-out"):
                    assert (await browser.post(path, headers={"Origin": origin})).status_code == 403, (
                        origin,
                        path,
                    )
            assert (await browser.get("/", headers={"Origin": f"http://{HOST}"})).status_code == 200

    play(story)


def test_a_change_needs_the_secret_of_the_page() -> None:
    async def story(one: Scene) -> None:
        await one.admin.create_topic("orders", queues=1)
        await one.admin.create_group("billing")
        async with one.browser(Role.OPERATOR) as browser, one.browser(Role.OPERATOR) as other:
            for given in ("", "guessed", one.csrf(other)):
                for path in API_POSTS:
                    answer = await browser.post(path, json={}, headers={"X-CSRF-Token": given})
                    assert answer.status_code == 403, path
                for path in PAGE_POSTS:
                    form = {"csrf": given, "name": "billing", "topic": "orders", "to": "end", "apply": "yes"}
                    assert (await browser.post(path, data=form)).status_code == 403, path

    play(story)


def test_broken_and_large_requests_get_clear_answers() -> None:
    async def story(one: Scene) -> None:
        async with one.browser(Role.OPERATOR) as browser:
            headers = {"X-CSRF-Token": one.csrf(browser), "Content-Type": "application/json"}
            bodies = [
                b"",
                b"{",
                b"[]",
                b"null",
                b'{"name": 5}',
                b'{"nam": "x"}',
                b"\xff\xfe",
                b'{"a":' * 5000,
            ]
            for path in API_POSTS:
                for body in bodies:
                    answer = await browser.post(path, content=body, headers=headers)
                    assert answer.status_code == 400, (path, body[:20], answer.text)
                    assert answer.json()["error"]
                answer = await browser.post(
                    path, content=b"{}", headers=headers | {"Content-Type": "text/plain"}
                )
                assert answer.status_code == 400
                answer = await browser.post(path, content=b"x" * (BODY_BYTES_MAX + 1), headers=headers)
                assert answer.status_code == 413

                async def endless() -> object:
                    for _ in range(10):
                        yield b"x" * (BODY_BYTES_MAX // 5)

                answer = await browser.post(path, content=endless(), headers=headers)  # type: ignore[arg-type]
                assert answer.status_code == 413

    play(story)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../tokens.py",
        "/static/..%2ftokens.py",
        "/static/%2e%2e/tokens.py",
        "/static//etc/passwd",
        "/static/",
        "/static/app.js/..",
        "/static/icon.svg%00",
    ],
)
def test_static_files_are_those_and_no_more(path: str) -> None:
    async def story(one: Scene) -> None:
        async with one.browser(Role.VIEWER) as browser:
            request = browser.build_request("GET", f"http://{HOST}/")
            request.url = httpx.URL(f"http://{HOST}").copy_with(raw_path=path.encode())
            answer = await browser.send(request)
            assert answer.status_code == 404
            assert "scrypt" not in answer.text

    play(story)


def test_every_answer_has_the_headers_and_pages_have_nothing_inline() -> None:
    async def story(one: Scene) -> None:
        async with one.browser(Role.OPERATOR) as browser, one.browser() as stranger:
            answers = [
                await browser.get(path)
                for path in (*PAGES, "/nowhere", "/static/app.css", f"{PREFIX}/overview")
            ]
            answers.append(await stranger.get("/sign-in"))
            answers.append(await stranger.get("/", headers={"Host": "evil.example"}))
            for answer in answers:
                for name, value in HEADERS.items():
                    assert answer.headers[name] == value, (answer.url, name)
                for inline in (
                    "<style",
                    " style=",
                    "onclick=",
                    "<script>",
                    "javascript:",
                    "http://www",
                    "https://",
                ):
                    assert inline not in answer.text or answer.url.path.endswith(".css"), (answer.url, inline)
        policy = HEADERS["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy

    play(story)


def test_wrong_tokens_are_counted() -> None:
    tries = Tries()
    assert [tries.take("a", now_ms) for now_ms in range(7)] == [True] * 5 + [False] * 2
    assert tries.take("b", 0)
    assert tries.take("a", 60_000)
    assert not tries.take("a", 60_000)
    tries.forgive("a")
    assert tries.take("a", 60_000)

    async def story(one: Scene) -> None:
        async with one.browser() as browser:
            answers = await asyncio.gather(
                *(browser.post("/sign-in", data={"token": f"w{n}"}) for n in range(8))
            )
            assert {answer.status_code for answer in answers} == {403}
            answer = await browser.post("/sign-in", data={"token": TOKENS[Role.OPERATOR]})
            assert answer.status_code == 403  # the right one too, for a minute

    play(story)


def test_sessions_end_and_are_bounded() -> None:
    sessions = Sessions(new_secret)
    first = sessions.begin(Role.VIEWER, 0)
    assert sessions.find(first, SESSION_MS - 1) is not None
    assert sessions.find(first, SESSION_MS) is None
    secrets = [sessions.begin(Role.VIEWER, 0) for _ in range(SESSIONS_MAX + 1)]
    assert sessions.find(secrets[0], 0) is None
    assert sessions.find(secrets[-1], 0) is not None


def test_tokens_are_shown_once_and_kept_hashed_for_the_owner_alone(tmp_path: Path) -> None:
    keyring, tokens = load_keyring(tmp_path, new_secret)
    file = tmp_path / FILE_NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    for role, token in tokens.items():
        assert token not in text
        assert keyring.role_of(token) is role
        assert token not in repr(keyring)
    again, shown = load_keyring(tmp_path, new_secret)
    assert shown == {}
    assert again.role_of(tokens[Role.OPERATOR]) is Role.OPERATOR
    assert again.role_of("") is None
    anew, fresh = load_keyring(tmp_path, new_secret, anew=True)
    assert anew.role_of(tokens[Role.OPERATOR]) is None
    assert anew.role_of(fresh[Role.OPERATOR]) is Role.OPERATOR
    file.chmod(0o644)
    with pytest.raises(TokenFileError, match="chmod 600"):
        load_keyring(tmp_path, new_secret)
    file.chmod(0o600)
    file.write_text("{")
    with pytest.raises(TokenFileError, match="new-tokens"):
        load_keyring(tmp_path, new_secret)


def test_it_does_not_listen_to_others_in_clear() -> None:
    for host in ("0.0.0.0", "10.0.0.5", "::"):
        with pytest.raises(SettingsError, match="in clear"):
            DashboardPlan(host=host)
    with pytest.raises(SettingsError, match="no IP address"):
        DashboardPlan(host="example.org")
    with pytest.raises(SettingsError, match="belong together"):
        DashboardPlan(tls_cert=Path("cert.pem"))
    assert "evil.example:1" not in hosts_of(DashboardPlan(), 1)
    assert "dash.example" in hosts_of(DashboardPlan(allowed_hosts=("Dash.Example",)), 1)


def test_nothing_secret_is_logged_and_mistakes_do_not_leak(caplog: pytest.LogCaptureFixture) -> None:
    async def story(one: Scene) -> None:
        one.desk.overview = None  # type: ignore[assignment,method-assign]  # a mistake of ours
        one.desk.poller.overview.drawn = None  # type: ignore[assignment,method-assign]
        async with one.browser() as browser:
            await browser.post("/sign-in", data={"token": "canary-wrong-token\nforged line"})
            await browser.post("/sign-in", data={"token": TOKENS[Role.OPERATOR]})
            for path in ("/", f"{PREFIX}/overview"):
                answer = await browser.get(path)
                assert answer.status_code == 500
                assert "NoneType" not in answer.text
                assert "Traceback" not in answer.text
        caplog_text = caplog.text
        for secret in ("canary", "forged", TOKENS[Role.OPERATOR], TOKENS[Role.VIEWER]):
            assert secret not in caplog_text
        assert "wrong token" in caplog_text

    with caplog.at_level(logging.DEBUG):
        play(story)
    assert KEYRING.hashes[Role.OPERATOR].hash.hex() not in caplog.text
