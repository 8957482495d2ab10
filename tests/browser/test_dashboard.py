"""The dashboard in Chromium, as a person uses it. Afterwards nothing was complained about and nothing was asked of another machine."""

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Page, World
from trimtab.dashboard.tokens import Role

LOOKS_MAX = 3
"""A change is in the first look that begins after it, and a look a second is the usual pace: one is under way, one sees it, and the next may
come while the browser draws. Looks can be counted on any machine; that they come in time for two seconds is shown on virtual time, by
`tests/unit/dashboard/test_goal_of_two_seconds.py`."""
SLIDE = """
const at = document.getElementById("at");
at.value = at.min;
at.dispatchEvent(new Event("input", {bubbles: true}));
"""
COLOURS_DRAWN = """
const canvas = document.querySelector(arguments[0] + " canvas");
if (!canvas || !canvas.width) return 0;
const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
return new Set(pixels).size;
"""
REACHABLE = """
return [...document.querySelectorAll("a[href], button, input, select, summary")].filter(
  (one) => one.type !== "hidden" && one.tabIndex >= 0 && one.checkVisibility({visibilityProperty: true})).length
"""
# Every text on the page against the nearest background behind it, as WCAG counts it.
FAINT = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
const channels = (colour, below) => {
  canvas.fillStyle = below; canvas.fillRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const light = (rgb) => rgb.map((one) => one / 255).map((one) => one <= .03928 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4)
  .reduce((sum, one, place) => sum + one * [.2126, .7152, .0722][place], 0);
const behind = (one) => {
  const layers = [];
  for (let at = one; at; at = at.parentElement) layers.unshift(getComputedStyle(at).backgroundColor);
  return layers.reduce((below, colour) => `rgb(${channels(colour, below).join(" ")})`, "white");
};
const found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const one = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !one.checkVisibility() || one.closest(".sr, .skip, option, datalist")) continue;
  const back = behind(one);
  const [a, b] = [light(channels(getComputedStyle(one).color, back)), light(channels(back, "white"))];
  const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (contrast < arguments[0]) found.push(`${contrast.toFixed(2)} ${one.className || one.tagName}: ${walk.currentNode.data.trim().slice(0, 40)}`);
}
return found;
"""
CONTRAST_MIN = 4.5
WHERE = """
const one = document.activeElement;
const all = [...document.querySelectorAll("a[href], button, input, select, summary")];
return all.includes(one) ? String(all.indexOf(one)) : "";
"""
PAGES = {
    "overview": "", "group": "group?name=billing", "topics": "topics", "topic": "topic?name=orders&since=-1h", "producers": "producers?name=shop",
    "dead": "dead-letters?name=billing", "simulated": "simulation", "api": "api",
}  # fmt: skip
FETCH = """
const [path, done] = [arguments[0], arguments[arguments.length - 1]];
fetch(path, {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"}).then((answer) => done(answer.status));
"""


@pytest.fixture(autouse=True)
def quiet_and_at_home(browser: Page) -> Iterator[None]:
    yield
    browser.resize(1280, 900)
    assert browser.complaints() == []
    strangers = {
        url for url in browser.requested() if not url.startswith((browser.url, "data:", "chrome:", "about:"))
    }
    assert strangers == set()


def test_members_come_and_go_while_the_page_is_open(world: World, browser: Page) -> None:
    world.join("c-1")
    browser.get("group?name=billing")
    browser.until(lambda: set(browser.held()) == {"c-1"}, "one member holds all queues")
    browser.driver.execute_script("window.isTheSamePage = true")
    world.join("c-2")
    browser.until(lambda: world.holders() == {"c-1", "c-2"}, "the members have shared out")
    shared_at = world.looks()
    browser.until(lambda: set(browser.held()) == {"c-1", "c-2"}, "both hold something, and each queue one")
    assert world.looks() - shared_at <= LOOKS_MAX
    assert browser.text("#member-count") == "2"
    assert browser.text("#double-held") == "0"
    browser.until(lambda: "passed" in browser.text("#findings"), "nothing is found to be wrong")
    browser.picture("group")
    world.leave("c-2")
    browser.until(lambda: world.holders() == {"c-1"}, "one member has taken all queues")
    left_at = world.looks()
    browser.until(lambda: set(browser.held()) == {"c-1"}, "one member holds all queues again")
    assert world.looks() - left_at <= LOOKS_MAX
    assert browser.driver.execute_script("return window.isTheSamePage")
    assert browser.text("#link") == "live"


def test_the_timeline_says_what_moved_and_why(world: World, browser: Page) -> None:
    world.join("c-3")
    browser.get("group?name=billing")
    browser.until(lambda: "c-3 joined" in browser.text("#timeline"), "the cause is told")
    browser.until(lambda: "c-3" in browser.text("#timeline .moves"), "from whom to whom")
    browser.get("group?name=billing")  # with all of it on the slider
    browser.driver.execute_script(SLIDE)
    browser.until(
        lambda: "not recorded until then" in browser.text("#scrubbed"),
        "before the first event nothing is known",
    )
    browser.driver.execute_script("window.isTheSamePage = true")
    browser.click("#later")
    browser.until(lambda: "c-1" in browser.text("#scrubbed"), "who held what after the first change")
    assert browser.driver.execute_script("return window.isTheSamePage")
    browser.picture("scrubbed")
    world.leave("c-3")


def test_what_if(world: World, browser: Page) -> None:
    browser.get("group?name=billing")
    browser.until(lambda: browser.held() and "" not in browser.held(), "every queue is held")
    browser.fill("#join", "3")
    browser.driver.find_element(By.ID, "join").send_keys(Keys.ENTER)
    browser.until(lambda: "queues would move" in browser.text("#what-if-result"), "the answer")
    assert "new-3" in browser.text("#what-if")
    browser.picture("what-if")


def test_a_message_is_found_and_viewed(world: World, browser: Page) -> None:
    (receipt,) = world.send(
        b'{"total": 12, "note": "<script>alert(1)</script>"}', keys=["o-77"], tag="<b>eu</b>"
    )
    browser.get("topic?name=orders")
    browser.fill("#key", "o-77")
    browser.click("#search button")
    browser.until(lambda: "1 message found" in browser.text("#found"), "it is found")
    browser.picture("topic")
    browser.click(".messages tbody a")
    browser.until(lambda: receipt.offset_message_id in browser.text(), "it is shown")
    assert "<script>alert(1)</script>" in browser.text()
    assert "<b>eu</b>" in browser.text()
    browser.picture("message")
    browser.click("#resend button")
    browser.until(lambda: "would go to orders" in browser.text(), "a preview")
    browser.click("#apply")
    browser.until(lambda: "went to orders" in browser.text(), "it is sent")


def test_offsets_are_reset_after_a_preview(world: World, browser: Page) -> None:
    world.run(world.admin.create_group("audit"))
    world.send(*[b"x"] * 16)
    world.run(world.admin.reset_offsets("audit", "orders", "begin"))
    browser.get("group?name=audit")
    browser.fill("#reset-topic", "orders")
    browser.fill("#reset-to", "end")
    browser.click("#reset button")
    browser.until(lambda: "Preview" in browser.text("h1"), "a preview")
    assert {row.offset for row in world.run(world.admin.group_offsets("audit", "orders"))} == {0}
    browser.picture("reset")
    browser.click("#apply")
    browser.until(lambda: "Done" in browser.text("h1"), "it is done")
    assert world.run(world.admin.progress("audit")).lag == 0


def test_a_dead_letter_is_replayed_after_a_preview(world: World, browser: Page) -> None:
    if "c-1" not in world.members:
        world.join("c-1")
    world.send(b"poison")
    browser.until(lambda: "%DLQ%billing" in world.run(world.admin.topics()).names, "it died")

    def is_listed() -> bool:
        browser.get("dead-letters?name=billing")
        return "poison" not in browser.text() and len(browser.driver.find_elements(By.NAME, "ids")) == 1

    browser.until(is_listed, "the letter is listed")
    browser.picture("dead-letters")
    browser.click("#replay")
    browser.until(lambda: "would go to group billing" in browser.text(), "a preview")
    assert world.replayed == []
    world.is_picky = False
    browser.click("#apply")
    browser.until(lambda: "went to group billing" in browser.text(), "it is sent")
    browser.until(lambda: world.replayed == [b"poison"], "the group got it again")


def test_a_simulation(browser: Page) -> None:
    browser.get("simulation")
    browser.fill("#members", "3")
    browser.fill("#queues", "8")
    browser.click("main form button")
    browser.until(lambda: "Delivered twice" in browser.text("#reports"), "both modes side by side")
    browser.until(lambda: browser.driver.execute_script(COLOURS_DRAWN, "#run-0") > 4, "a colour a member")
    browser.until(lambda: browser.driver.execute_script(COLOURS_DRAWN, "#run-1") > 4, "the other mode too")
    assert len(browser.driver.find_elements(By.CSS_SELECTOR, ".run .then-held tr")) == 16
    browser.click("#play")
    browser.until(
        lambda: browser.text("#play") == "Play" and browser.text("#moment-text") != "0.0 s", "it was played"
    )
    assert browser.text(".run .then") == "0 held by nobody, 0 held twice"
    browser.picture("simulation")


def test_lag_is_drawn_over_time_and_stays_while_the_page_changes(world: World, browser: Page) -> None:
    world.run(world.admin.create_group("slow"))
    world.run(world.admin.reset_offsets("slow", "orders", "begin"))
    browser.get("group?name=slow")
    world.send(*[b"x"] * 8)
    browser.until(lambda: browser.driver.execute_script(COLOURS_DRAWN, "#lag-chart") > 3, "a line is drawn")
    browser.driver.execute_script("window.drawn = document.querySelector('#lag-chart canvas')")
    looks = world.dashboard.poller.group("slow").looks
    browser.until(lambda: world.dashboard.poller.group("slow").looks > looks + 2, "the page has changed")
    assert browser.driver.execute_script("return window.drawn.isConnected")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_everything_without_scrolling_sideways(world: World, browser: Page, dark: bool) -> None:
    browser.resize(390, 844, dark=dark)
    for name, path in PAGES.items():
        browser.get(path)
        width = browser.driver.execute_script("return document.documentElement.scrollWidth")
        assert width <= 390, path
        browser.picture(f"phone-{name}-{'dark' if dark else 'light'}")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_can_be_read(browser: Page, dark: bool) -> None:
    browser.resize(1280, 900, dark=dark)
    for name, path in PAGES.items():
        browser.get(path)
        assert browser.driver.execute_script(FAINT, CONTRAST_MIN) == [], name
        browser.picture(f"{name}-{'dark' if dark else 'light'}")
    assert browser.driver.execute_script(FAINT, 22) != []  # the check can fail


def test_everything_can_be_reached_by_keyboard(browser: Page) -> None:
    for name, path in PAGES.items():
        if name in ("overview", "group", "topic"):  # these change while they are open
            browser.get(f"{path}{'&' if '?' in path else '?'}still")
            browser.driver.execute_script("listen = () => {}; if (source) source.close();")
        else:
            browser.get(path)
        wanted = browser.driver.execute_script(REACHABLE)
        seen = set()
        for _ in range(2 * wanted + 20):
            ActionChains(browser.driver).send_keys(Keys.TAB).perform()
            seen.add(browser.driver.execute_script(WHERE))
            if len(seen - {""}) >= wanted:
                break
        assert len(seen - {""}) >= wanted, name


def test_the_keyboard_stays_where_it_is_while_the_page_changes(world: World, browser: Page) -> None:
    world.run(world.admin.create_group("steady"))
    browser.get("")
    at = "a[href='/group?name=steady']"
    focus = "const one = document.querySelector(arguments[0]); if (one) one.focus(); window.focused = one; return !!one"
    browser.until(lambda: browser.driver.execute_script(focus, at), "the group is listed")
    browser.until(
        lambda: browser.driver.execute_script("return !window.focused.isConnected"), "a new version"
    )
    assert browser.driver.execute_script("return document.activeElement.matches(arguments[0])", at)


def test_a_viewer_looks_and_changes_nothing(world: World, browser: Page) -> None:
    browser.sign_in(world.dashboard.tokens[Role.VIEWER])
    assert browser.text("#role") == "viewer"
    browser.get("group?name=billing")
    assert "A viewer may look and not change" in browser.text("#reset")
    assert not browser.driver.find_elements(By.CSS_SELECTOR, "#reset form")
    assert browser.driver.execute_async_script(FETCH, "/api/v1/group/reset") == 403
    assert any("403" in text for text in browser.complaints())  # the one that was asked for
    browser.click(".who button")
    browser.until(lambda: "Sign in" in browser.text("h1"), "signed out")
    browser.picture("sign-in")
