"""`fit --html`: the page in a real browser, beside the report of the same run."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from injected.text import HOSTILE
from made_repos import TINY_LLAMA
from playwright.sync_api import Browser, Page, sync_playwright

from planner.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
]
CASES = {
    "pair": ["Qwen/Qwen3-32B", "--gpu", "h100-80gb:2"],
    "wide": ["Qwen/Qwen3-32B", "--draft", "Qwen/Qwen3-0.6B", "--gpu", "h100-80gb:8", "--also-for", "sglang"],
    "stages": ["Qwen/Qwen3-32B", "--draft", "ngram", "--gpu", "h100-80gb:2", "--pp", "2"],
    "not": ["Qwen/Qwen3-32B", "--gpu", "l4"],
    "alone": ["Qwen/Qwen3-8B", "--draft", "none", "--gpu", "l4"],
}
#: The worst contrast between a text and what lies behind it, over all elements that hold text themselves.
CONTRAST = """
() => {
  const curve = value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const channel = value => curve(value / 255);
  const parts = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([red, green, blue]) => 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
  const behind = element => {
    for (; element; element = element.parentElement) {
      const found = parts(getComputedStyle(element).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const holds = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  let worst = [99, ""];
  for (const element of document.querySelectorAll("body *:not(svg *)")) {
    if (!holds(element)) continue;
    const [one, other] = [light(parts(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < worst[0]) worst = [ratio, element.tagName + ": " + element.textContent.slice(0, 60)];
  }
  return worst;
}
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A page and the report of the same run."""

    page: Path
    report: Mapping[str, Any]
    words: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """Runs a case once, in a process and a home of its own."""
    known: dict[str, Made] = {}

    def make(name: str) -> Made:
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            outputs = ["--offline", "--json", "report.json", "--html", "report.html"]
            done = subprocess.run(
                [sys.executable, "-m", "planner.cli.main", "fit", *CASES[name], *outputs],
                cwd=folder,
                env={"PYTHONPATH": str(ROOT), "HOME": str(folder), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
            assert done.returncode == report["exit_code"], done.stderr
            known[name] = Made(page=folder / "report.html", report=report, words=done.stdout)
        return known[name]

    return make


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium here: the page is looked at in a real browser only")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page; afterwards nothing may have been asked for, said on the console or shown as a dialog."""
    asked: list[str] = []
    said: list[str] = []
    contexts = []

    def open_page(path: Path, *, width: int = 1280, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert len(asked) == len(contexts)  # the page itself
    assert said == []


def up(size_bytes: int) -> str:
    """GiB to two places, rounded up, by integers alone."""
    hundredths = -(-size_bytes * 100 // 2**30)
    return f"{hundredths // 100:,}.{hundredths % 100:02}" if hundredths < 10**5 else f"{ceil(hundredths / 100)}"


def span(low: int, high: int) -> str:
    return f"{up(high)} GiB" if up(low) == up(high) else f"{up(low)} – {up(high)} GiB"


@pytest.mark.parametrize("name", CASES)
def test_the_figures_are_the_reports(name: str, made: Callable[[str], Made], opened: Callable[..., Page]) -> None:
    case = made(name)
    page = opened(case.page)
    text = " ".join((page.text_content("main") or "").split())
    report = case.report
    best = next((one for one in report["candidates"] if one["rank"] == 1), None)
    shown = best["memory"] if best is not None else report["memory"]
    for rank in shown["per_rank"]:
        assert span(rank["total_low_bytes"], rank["total_high_bytes"]) in text
        for item in rank["items"]:
            assert f"{item['high_bytes']:,} B" in text
            assert span(item["low_bytes"], item["high_bytes"]) in text
            assert item["formula"] in text
    for candidate in report["candidates"]:
        assert (candidate["repo_id"] or candidate["method"]) in text
        assert all(reason["text"] in text for reason in candidate["reasons"])
        told = candidate["prediction"]
        if told is not None and told["speedup"] is not None:
            assert f"{told['speedup']['low']:.2f} – {told['speedup']['high']:.2f} ×" in text
    command = report["recommendation"]
    if command is not None:
        assert (page.text_content("pre.pick") or "").replace(" \\\n ", "") == command["command_text"]
    assert f"Exit code {report['exit_code']}." in text
    assert report["created_at"][:10] in text
    assert all(device["name"] in text for device in report["devices"])


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", CASES)
def test_nothing_sticks_out_of_the_page(
    name: str, width: int, made: Callable[[str], Made], opened: Callable[..., Page]
) -> None:
    page = opened(made(name).page, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_can_be_read_by_day_and_by_night(made: Callable[[str], Made], opened: Callable[..., Page]) -> None:
    backgrounds = set()
    for dark in (False, True):
        for name in ("wide", "not"):
            page = opened(made(name).page, dark=dark)
            ratio, where = page.evaluate(CONTRAST)
            assert ratio >= 4.5, where
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2


def test_one_click_takes_the_command(made: Callable[[str], Made], opened: Callable[..., Page]) -> None:
    page = opened(made("pair").page)
    page.click("pre.pick")
    taken = page.evaluate("getSelection().toString()")
    assert taken.replace(" \\\n ", "").strip() == made("pair").report["recommendation"]["command_text"]


def test_a_print_shows_every_receipt(made: Callable[[str], Made], opened: Callable[..., Page]) -> None:
    page = opened(made("pair").page)
    shows = "one.checkVisibility() && one.getBoundingClientRect().height > 0"
    seen = f"[...document.querySelectorAll('.receipt')].filter(one => {shows}).length"
    items = sum(len(rank["items"]) for rank in made("pair").report["candidates"][0]["memory"]["per_rank"])
    assert page.evaluate(seen) == 0
    page.emulate_media(media="print")
    assert page.evaluate(seen) == items


@pytest.mark.parametrize("name", CASES)
def test_it_can_be_heard(name: str, made: Callable[[str], Made], opened: Callable[..., Page]) -> None:
    """One first heading, no level left out, every table with a caption and headers that say what they head."""
    page = opened(made(name).page)
    assert page.get_attribute("html", "lang") == "en"
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(one => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.locator("table").count() == page.locator("table > caption").count() > 0
    assert page.locator("th:not([scope])").count() == 0
    identities = page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(identities) == len(set(identities))


def test_hostile_names_stay_text(
    tmp_path: Path,
    opened: Callable[..., Page],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "<img src=x onerror=alert(1)>\"'"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for number, word in enumerate(("Llama", f"<script>alert(1)</script>{HOSTILE}")):
        config = {**TINY_LLAMA, "architectures": [word]}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        target = f"../report-{number}.html"
        code = main(["fit", str(folder), "--draft", "ngram", "--gpu", "l4", "--context", "128", "--html", target])
        assert code in {0, 3}, capsys.readouterr().err
    counts = []
    for number in (0, 1):
        page = opened(tmp_path / f"report-{number}.html")
        counts.append(page.locator("*").count())
        assert page.locator("script, img, iframe").count() == 0
        assert "<img src=x onerror=alert(1)>" in (page.text_content("h1") or "")
    assert counts[0] == counts[1]


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_a_missing_library_is_told_before_any_work(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    target = tmp_path / "report.html"
    assert main(["fit", "no/such-model", "--gpu", "l4", "--html", str(target)]) == 2
    told = capsys.readouterr().err
    assert f"--html: a page needs {missing}" in told
    assert "hint: pip install 'specplan[html]'" in told
    assert not target.exists()


@pytest.mark.parametrize("target", ["-", "no/such/folder/report.html", "."])
def test_a_place_that_will_not_do(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["fit", "Qwen/Qwen3-8B", "--draft", "none", "--gpu", "l4", "--offline", "--json", "-", "--html", target]
    assert main(line) == 2
    document = json.loads(capsys.readouterr().out)  # one document, of the failure
    assert document["error"]["code"] == "usage"
    assert list(tmp_path.iterdir()) == []


def test_document_page_and_pictures_come_out_of_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = ["--json", "-", "--html", "report.html", "--plot", "report.svg"]
    assert main(["fit", "Qwen/Qwen3-8B", "--draft", "ngram", "--gpu", "h100-80gb", "--offline", *outputs]) == 0
    report = json.loads(capsys.readouterr().out)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert report["created_at"] in page
    assert page.count("<svg") == (tmp_path / "report.svg").read_text(encoding="utf-8").count("<svg") - 1 == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.svg"]


def test_what_is_repeated_is_what_was_typed_without_its_files(made: Callable[[str], Made]) -> None:
    page = made("stages").page.read_text(encoding="utf-8")
    typed = ["specplan fit Qwen/Qwen3-32B", "--draft ngram", "--gpu h100-80gb:2", "--pp 2", "--offline"]
    assert " \\\n  ".join(typed) + "</code>" in page
