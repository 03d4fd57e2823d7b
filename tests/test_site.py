"""The site that ``make docs`` builds: built strictly, each link leads somewhere, nothing comes from elsewhere.

In a browser its search works, from a web server and from a folder, and no request leaves the machine.
"""

import functools
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from persian_pages import CODE_OUT_OF_ORDER, LEFT_TO_RIGHT, LINES_RIGHT_TO_LEFT

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = Path("/usr/bin/chromium")
#: Tags that load what their attribute names; an <a> only leads there.
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}
_STYLE_URL = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')\s]+)""")


@dataclass
class Page(HTMLParser):
    """What one page names: its anchors, its links, what it loads."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if given.get(LOADING.get(tag, "")) and given.get("rel") not in {"next", "prev", "canonical"}:
            self.loaded.append(given[LOADING[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_page_is_built(site: Path, pages: dict[Path, Page]) -> None:
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {path.relative_to(site) for path in pages} == written


def test_every_link_and_anchor_leads_somewhere(pages: dict[Path, Page]) -> None:
    broken = []
    for page in pages.values():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            anchors = pages[target].anchors if target in pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append(f"{page.path.name}: {link}")
    assert sum(len(page.links) for page in pages.values()) > 100
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    named = [(page.path.name, url) for page in pages.values() for url in page.loaded]
    for sheet in site.rglob("*.css"):
        named += [(sheet.name, url) for url in _STYLE_URL.findall(sheet.read_text(encoding="utf-8"))]
    assert len(named) > len(pages)
    assert [(name, url) for name, url in named if urlsplit(url).netloc] == []


def test_no_markup_is_left_in_the_text(pages: dict[Path, Page]) -> None:
    """A list without an empty line before it, a table that is none, a link in wrong brackets."""
    for page in pages.values():
        text = re.sub(r"<(pre|code|script)\b.*?</\1>", "", page.path.read_text(encoding="utf-8"), flags=re.DOTALL)
        article = text.partition("<article")[2].partition("</article")[0]
        lines = [line for line in re.sub(r"<[^>]+>", "", article).splitlines() if line.strip()]
        bad = [line for line in lines if re.match(r"\s*(\||[-*] \S|#+ |```)", line) or "](" in line]
        assert bad == [], page.path.name
        # Some hosts show the escape of a bar that stands in code in a table, others take it away.
        assert re.findall(r"<code[^>]*>[^<]*\\\|[^<]*</code>", article) == []


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium")
@pytest.mark.parametrize("way", ["server", "folder"])
def test_the_search_works_without_a_network(way: str, site: Path, served: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    here = served if way == "server" else site.as_uri()
    quiet = ["background-networking", "component-update", "sync", "gpu"]
    options = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=str(CHROMIUM), args=options)
        page = browser.new_page()
        asked: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{here}/guides/calibrate.html")
        page.locator("input.md-search__input").click()
        page.keyboard.type("utilization_window_empty", delay=20)
        found = page.locator(".md-search-result__link").first
        found.wait_for(timeout=20_000)
        assert "common-problems.html" in str(found.get_attribute("href"))
        page.locator("input.md-search__input").fill("حافظه")
        page.locator(".md-search-result__link[href*='fa/']").first.wait_for(timeout=20_000)
        browser.close()
    assert errors == []
    assert [url for url in asked if not url.startswith((here, "data:", "blob:", "about:"))] == []


@pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium")
def test_persian_pages_show_everything_in_order(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    quiet = ["background-networking", "component-update", "sync", "gpu"]
    options = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=str(CHROMIUM), args=options)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        for path in sorted(site.glob("fa/*.html")):
            page.goto(path.as_uri())
            assert page.evaluate("document.querySelectorAll('[dir=\"rtl\"] p').length") > 0, path.name
            for question in (CODE_OUT_OF_ORDER, LEFT_TO_RIGHT, LINES_RIGHT_TO_LEFT):
                assert page.evaluate(question) == [], path.name
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path.name
        browser.close()
