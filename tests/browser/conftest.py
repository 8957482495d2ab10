"""A real browser before a real dashboard on a real cluster. Marked `browser`: run by `make browser`, which needs Chromium and its driver."""

import asyncio
import base64
import json
import os
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

import trimtab
from trimtab.broker.settings import BrokerSettings
from trimtab.client.push_settings import Consuming
from trimtab.dashboard.serving import DashboardPlan, Running, running
from trimtab.dashboard.tokens import Role
from trimtab.model import MessageQueue
from trimtab.settings import Timeouts
from trimtab.testing import AsyncCluster, Cluster

HERE = Path(__file__).parent
WAIT_S = 60.0
QUEUES = 4
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
T = TypeVar("T")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.browser)


class World:
    """A cluster, a dashboard and members, in a thread of their own."""

    cluster: AsyncCluster
    admin: trimtab.Admin
    dashboard: Running

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        self.members: dict[str, trimtab.PushConsumer] = {}
        self.is_picky = True
        self.replayed: list[bytes] = []
        self.run(self._start())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_S)

    async def _start(self) -> None:
        enter = self._stack.enter_async_context
        settings = BrokerSettings(delay_levels=" ".join(["1s"] * 18))
        self.cluster = await enter(Cluster(brokers=2, settings=settings))
        self.admin = await enter(
            trimtab.Admin(nameserver=self.cluster.nameserver, timeouts=Timeouts(request_s=30.0))
        )
        await self.admin.create_topic("orders", queues=QUEUES)
        plan = DashboardPlan(port=0)  # at the pace that people get
        self.dashboard = await enter(running(self.admin, plan))

    async def _handle(self, message: trimtab.Received) -> None:
        if message.body == b"poison":
            if self.is_picky:
                raise ValueError("cannot be handled")
            self.replayed.append(message.body)

    async def _join(self, name: str) -> None:
        self.members[name] = trimtab.PushConsumer(
            "billing", subscribe={"orders": "*"}, handler=self._handle, nameserver=self.cluster.nameserver, client_id=name,
            start="first", consuming=Consuming(reconsume_times_max=0),
        )  # fmt: skip
        await self.members[name].start()

    def join(self, name: str) -> None:
        self.run(self._join(name))

    def leave(self, name: str) -> None:
        self.run(self.members.pop(name).close())

    async def _holders(self) -> set[str]:
        states = await self.admin.member_states("billing")
        held = [row.queue for state in states.members for row in state.queues if not row.dropped]
        owners = {state.client_id for state in states.members if any(not row.dropped for row in state.queues)}
        return owners if len(held) == len(set(held)) and self._has_all(held) else set()

    def _has_all(self, held: list[MessageQueue]) -> bool:
        return sum(queue.topic == "orders" for queue in held) == len(self.cluster.brokers) * QUEUES

    def holders(self) -> set[str]:
        """Who holds queues, by the members' own word; nobody, while a queue has none or two."""
        return self.run(self._holders())

    def looks(self) -> int:
        """How often the dashboard has looked at the group."""
        return self.dashboard.poller.group("billing").looks

    async def _send(self, bodies: tuple[bytes, ...], fields: dict[str, Any]) -> list[trimtab.Receipt]:
        timeouts = Timeouts(send_s=30.0)
        async with trimtab.Producer("shop", nameserver=self.cluster.nameserver, timeouts=timeouts) as one:
            return [await one.send(trimtab.Message("orders", body, **fields)) for body in bodies]

    def send(self, *bodies: bytes, **fields: Any) -> list[trimtab.Receipt]:
        return self.run(self._send(bodies, fields))

    def close(self) -> None:
        for name in list(self.members):
            self.leave(name)
        self.run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


class Page:
    """The browser, and what a test looks for in it."""

    def __init__(self, driver: webdriver.Chrome, url: str, pictures: Path) -> None:
        self.driver = driver
        self.url = url
        self._pictures = pictures

    def get(self, path: str) -> None:
        self.driver.get(self.url + path)

    def sign_in(self, token: str) -> None:
        self.driver.delete_all_cookies()
        self.get("sign-in")
        self.driver.find_element(By.ID, "token").send_keys(token)
        self.driver.find_element(By.CSS_SELECTOR, "main button").click()
        self.until(lambda: self.driver.find_elements(By.ID, "role"), "signed in")

    def text(self, css: str = "main") -> str:
        return str(
            self.driver.execute_script(
                "const one = document.querySelector(arguments[0]); return one ? one.innerText : '';", css
            )
        )

    def click(self, css: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, css).click()

    def fill(self, css: str, text: str) -> None:
        field = self.driver.find_element(By.CSS_SELECTOR, css)
        field.clear()
        field.send_keys(text)

    def until(self, condition: Callable[[], object], what: str) -> None:
        WebDriverWait(self.driver, WAIT_S, 0.05).until(
            lambda _: condition(), f"not in {WAIT_S:.0f} s: {what}: {self.text()[:600]}"
        )

    def held(self) -> list[str]:
        """For each queue of the matrix, who holds it."""
        script = (
            "return [...document.querySelectorAll('#matrix .matrix tbody tr:not(.topic)')].map("
            "row => [...row.querySelectorAll('.held .sr')].map(one => one.textContent.replace('held by ', '')).join('+'))"
        )
        return list(self.driver.execute_script(script))

    def picture(self, name: str) -> None:
        """Kept, to be looked at."""
        self._pictures.mkdir(parents=True, exist_ok=True)
        size = self.driver.execute_script(
            "return [innerWidth, Math.min(3000, document.documentElement.scrollHeight)]"
        )
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        (self._pictures / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def complaints(self) -> list[str]:
        """What the console says since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def requested(self) -> set[str]:
        """Every address that was asked for since it was last asked."""
        found = set()
        for entry in self.driver.get_log("performance"):  # type: ignore[no-untyped-call]
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.add(message["params"]["request"]["url"])
        return found


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    one = World()
    yield one
    one.close()


@pytest.fixture(scope="module")
def browser(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.fail("Chromium or its driver is missing; Debian: apt-get install chromium chromium-driver")
    options = Options()
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    pictures = Path(os.environ.get("TRIMTAB_PICTURES") or tmp_path_factory.mktemp("pictures"))
    try:
        driver.set_script_timeout(WAIT_S)
        page = Page(driver, world.dashboard.url, pictures)
        page.resize(1280, 900)
        page.sign_in(world.dashboard.tokens[Role.OPERATOR])
        yield page
    finally:
        driver.quit()
