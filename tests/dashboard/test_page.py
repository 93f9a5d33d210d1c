"""`homing up` and its page, in a real browser."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

import homing
from homing.node.runs import Run, note_run
from tests.push.processes import free_offset

pytestmark = pytest.mark.slow
needs_chromium = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="needs Debian's package chromium"
)
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


class Up:
    """A running `homing up`."""

    def __init__(self, data: Path) -> None:
        self.offset = free_offset()
        note_run(str(data / "tables"), Run("ledger", time.time(), 12.3, "nothing lost"))
        words = ["up", "--data", str(data), "--port-offset", str(self.offset)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "homing.cli", *words], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.said = ""
        while "ready up" not in self.said:
            line = self.process.stdout.readline()
            assert line, f"it ended: {self.said}"
            self.said += line
        self.url = re.findall(r"http://\S+:\d+/", self.said)[0]
        self.token = re.findall(r"token (\S+)", self.said)[0]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(30)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("up"))
    try:
        yield running
        assert running.end() == 0, "a drain ends well"
    finally:
        running.process.kill()
        running.process.wait()


def get(url: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_says_where_everything_is(up: Up) -> None:
    for port in (5555, 5556, 7001, 7005, 7006):
        assert f":{port + up.offset}" in up.said
    assert f"homing request echo hello --port-offset {up.offset}" in up.said


def test_what_it_says_to_try_works(up: Up) -> None:
    [publish] = re.findall(r"^  homing (publish .*)$", up.said, re.M)
    words = [sys.executable, "-m", "homing.cli", *shlex.split(publish)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "0\n"), ran.stderr
    [subscribe] = re.findall(r"^  homing (subscribe .*) &$", up.said, re.M)
    words = [sys.executable, "-m", "homing.cli", *shlex.split(subscribe), "--count", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as subscriber:
        deadline = time.monotonic() + 60
        while subscriber.poll() is None and time.monotonic() < deadline:
            subprocess.run(
                [sys.executable, "-m", "homing.cli", *shlex.split(publish)], check=True, timeout=60
            )
        subscriber.kill()
        assert subscriber.stdout is not None
        assert '"hello"' in subscriber.stdout.read()


def test_health_metrics_and_one_frame(up: Up) -> None:
    assert get(up.url + "livez")[0] == 200
    assert get(up.url + "readyz")[0] == 200
    assert "homing_service_accepted_total" in get(up.url + "metrics")[1]
    status, frame = get(up.url + "api/now")
    assert status == 200
    told = json.loads(frame)
    assert {node["role"] for node in told["topology"]["nodes"]} >= {"broker", "matcher"}
    assert round(told["topology"]["ring"][0]["share"], 6) == 1.0


def test_every_answer_is_timed(up: Up) -> None:
    async def scenario() -> None:
        async with homing.Client(f"tcp://127.0.0.1:{5555 + up.offset}") as client:
            worker = homing.Worker(f"tcp://127.0.0.1:{5556 + up.offset}")

            @worker.service("timed")
            async def timed(body: bytes) -> bytes:
                return body

            running = asyncio.create_task(worker.run())
            await worker.ready()
            for _ in range(5):
                await client.request("timed", b"")
            worker.stop()
            await running

    asyncio.run(scenario())
    assert 'homing_service_request_seconds_count{service="timed"} 5.0' in get(up.url + "metrics")[1]


@pytest.mark.parametrize(
    "path", ["page/../app.py", "page/none.js", "page/uplot.LICENSE", "nothing"]
)
def test_nothing_but_the_page_is_served(up: Up, path: str) -> None:
    assert get(up.url + path)[0] == 404


@pytest.mark.parametrize("token", ["", "wrong"])
def test_trying_needs_the_token(up: Up, token: str) -> None:
    status, answer = get(f"{up.url}api/subscribe?filter=x&token={token}")
    assert status == 403
    assert "token" in answer


def test_what_cannot_be_published_is_refused_in_words(up: Up) -> None:
    body = b'{"x":' + b"[" * 60_000
    url = f"{up.url}api/publish?token={up.token}"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, body), timeout=20)
    with refused.value as answer:
        assert (answer.code, b"not what this call takes" in answer.read()) == (422, True)


async def _answers(up: Up) -> str:
    """A worker that serves one request of the page."""
    worker = homing.Worker(f"tcp://127.0.0.1:{5556 + up.offset}")
    served = asyncio.Event()

    @worker.service("echo")
    async def echo(body: bytes) -> bytes:
        served.set()
        return b"you said " + body

    running = asyncio.create_task(worker.run())
    await worker.ready()
    told = await asyncio.to_thread(_browse, up)
    assert served.is_set()
    worker.stop()
    await running
    return told


def _browse(up: Up) -> str:
    """Look at the page and try everything; what the browser complained about."""
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        problems: list[str] = []
        page.on(
            "console", lambda said: problems.append(said.text) if said.type == "error" else None
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(up.url)
        expect(page.locator("#state")).to_contain_text("ready", timeout=20_000)
        _try_all(page, up)
        _look(page)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, "a phone need not scroll sideways"
        browser.close()
    return "\n".join(problems)


def _try_all(page: Page, up: Up) -> None:
    page.fill("#token", up.token)
    page.click("#try-request button")
    expect(page.locator("#try-request output")).to_have_text("you said hello", timeout=20_000)
    page.click("#try-subscribe button")
    expect(page.locator("#try-subscribe output")).to_contain_text("subscribed", timeout=20_000)
    page.click("#try-publish button")
    expect(page.locator("#try-publish output")).to_have_text(
        "1 subscription matched", timeout=20_000
    )
    expect(page.locator("#pushes li").first).to_contain_text('"Paris"', timeout=20_000)
    expect(page.locator("#services")).to_contain_text("echo", timeout=20_000)
    page.fill("#try-publish [name=attributes]", '{"price": 99}')
    page.click("#try-publish button")
    expect(page.locator("#try-publish output")).to_have_text("0 subscriptions matched")
    page.fill("#try-subscribe [name=filter]", "price in")
    page.click("#try-subscribe button")
    expect(page.locator("#try-subscribe output.bad")).to_contain_text("column", timeout=20_000)


# The heading that was asked for is there to be read, and not below the bar that stays on top.
UNCOVERED = """() => {
  const top = document.querySelector("#h-journal").getBoundingClientRect().top;
  return top >= document.querySelector("header").offsetHeight && top < innerHeight / 2;
}"""


# An endpoint, as somebody selects it to copy it.
SELECTED = """() => {
  getSelection().selectAllChildren(document.querySelector("#lane-service dd"));
  return String(getSelection());
}"""


def _look(page: Page) -> None:
    """What the fabric did is on the page."""
    expect(page.locator("#lane-push .ring")).to_contain_text("100.0 %", timeout=20_000)
    expect(page.locator("#lane-push")).to_contain_text("all subscriptions here", timeout=20_000)
    expect(page.locator("#lane-service")).to_contain_text("broker", timeout=20_000)
    expect(page.locator("#selectivity")).to_contain_text("price", timeout=20_000)
    expect(page.locator("#journals")).to_contain_text("matcher", timeout=20_000)
    expect(page.locator("#pipeline")).to_contain_text("nothing lost", timeout=20_000)
    expect(page.get_by_role("img", name="up", exact=True)).to_have_count(5)
    endpoint = page.evaluate(SELECTED)
    before = page.locator("#chart-requests .u-legend").inner_text()
    expect(page.locator("#chart-requests .u-legend")).not_to_have_text(before, timeout=20_000)
    assert endpoint
    assert page.evaluate("String(getSelection())") == endpoint, "who copies has time for it"
    page.click("nav a[href='#journal']")
    page.wait_for_function(UNCOVERED, timeout=20_000)
    page.focus(".skip")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.hash") == "#topology", "keyboards reach it"


@needs_chromium
def test_the_page_shows_and_tries_a_live_fabric(up: Up) -> None:
    complaints = asyncio.run(_answers(up))
    # The filter that does not parse is the one refusal that the browser notes.
    assert complaints.count("422") == 1, complaints
    assert len(complaints.splitlines()) == 1, complaints
