"""The Persian pages: right to left, well-set, and as true as the English ones."""

import ast
import contextlib
import html
import http.server
import io
import json
import re
import shlex
import subprocess
import threading
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from model_catalog.units import GB, GIB
from planner import nvml
from planner.cli.main import COMMANDS, main
from planner.errors import NvmlMissingError
from planner.service.exit_codes import EXIT_OF_ANSWER, EXIT_OF_ERROR
from planner.speculation.diagnosis import KNOWN_PROBLEMS
from planner.speculation.mean_length import geometric_length

ROOT = Path(__file__).resolve().parent.parent
PERSIAN = ROOT / "docs" / "fa"
PAGES = [ROOT / "README.fa.md", *sorted(PERSIAN.glob("*.md"))]
#: Pages that the figures of the Persian prose come from; the tables of the accuracy page hold nearly every number.
ENGLISH = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("concepts/*.md")),
    *(ROOT / "docs").glob("guides/*.md"),
]

LETTER = "آ-یءأؤئة"
_STRONG = rf"[A-Za-zα-ωΑ-Ω{LETTER}]"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ISOLATED = re.compile(r'<code dir="ltr">(.*?)</code>')
_PLAIN = re.compile(r"`([^`\n]+)`")
_PERSIAN_NUMBER = re.compile(r"[۰-۹]+(?:٫[۰-۹]+)?")
_TO_LATIN = str.maketrans("۰۱۲۳۴۵۶۷۸۹٫", "0123456789.")
#: Renders the same inside a right-to-left sentence without isolation: nothing neutral and no number at its ends.
_NEEDS_NO_ISOLATION = re.compile(r"[A-Za-z]([\x21-\x7e ]*[A-Za-z0-9])?")
#: Options of engines that the pages name; that the engine has them is checked where its command is emitted.
ENGINE_OPTIONS = {"--speculative-config"}


def where(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


each_page = pytest.mark.parametrize("page", PAGES, ids=where)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, *languages: str) -> list[str]:
    return [block for language, block in _FENCE.findall(text_of(page)) if language in languages]


def without_blocks(page: Path) -> str:
    return _FENCE.sub("", text_of(page))


def words_only(page: Path) -> str:
    """Running text: no fences, no inline code, no tags, no targets of links."""
    text = _ISOLATED.sub("Code", without_blocks(page))
    text = _PLAIN.sub("Code", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"</?\w[^>]*>", "", text)


def code_spans(page: Path) -> list[str]:
    text = without_blocks(page)
    return [html.unescape(found) for found in _ISOLATED.findall(text)] + _PLAIN.findall(text)


def shown(page: Path) -> str:
    """All transcripts of a page, lines joined, so that a figure at a line's end is found."""
    return " ".join(" ".join(blocks(page, "console", "text")).split())


@cache
def report_of(command: str) -> dict[str, Any]:
    """The JSON report of a ``specplan fit`` command line."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main([*shlex.split(command)[1:], "--json", "-"])
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No GPU, no network, no settings and caches of the user's."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "80")

    def no_driver() -> object:
        raise NvmlMissingError("no NVIDIA library", subject="NVML", hint="install the driver")

    monkeypatch.setattr(nvml, "read_devices", no_driver)
    monkeypatch.setattr("planner.cli.devices.read_devices", no_driver)


def test_the_pages_are_there() -> None:
    assert len(PAGES) >= 10
    assert "[فارسی](README.fa.md)" in text_of(ROOT / "README.md")


@each_page
def test_right_to_left_with_code_left_to_right(page: Path) -> None:
    """A code host takes direction from the nearest ``dir``: a rtl page, each fence in ltr."""
    lines = text_of(page).splitlines()
    assert lines[0] == '<div dir="rtl" markdown="1">' and lines[1] == ""
    assert lines[-1] == "</div>" and lines[-2] == ""
    nested, fence = 0, False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            fence = not fence
            assert nested == 2, f"line {number + 1}: a fence outside an ltr block"
        elif not fence and "<div" in line:
            # Markdown inside is read as such only after a blank line.
            assert line == f'<div dir="{"ltr" if nested else "rtl"}" markdown="1">' and lines[number + 1] == ""
            nested += 1
        elif not fence and "</div>" in line:
            assert line == "</div>" and lines[number - 1] == ""
            nested -= 1
    assert (nested, fence) == (0, False)


def runs(page: Path) -> list[str]:
    """What the bidirectional algorithm orders as one: paragraphs, headings, list items, cells."""
    return re.split(r"\n\s*\n|\||\n(?=[-#>]|\d+\. )", without_blocks(page))


@each_page
def test_inline_code_keeps_its_order(page: Path) -> None:
    """Not isolated, ``--context`` shows as ``context--``, and Latin words beside code change places with it."""
    wrong = []
    for run in runs(page):
        # An isolated span counts as neutral; the target of a link is not shown.
        seen = re.sub(r"\]\([^)]*\)", "]", _ISOLATED.sub("", run))
        for span in _PLAIN.finditer(seen):
            before = re.findall(_STRONG, seen[: span.start()])[-1:]
            after = re.findall(_STRONG, seen[span.end() :])[:1]
            beside = "".join(before + after)
            if not _NEEDS_NO_ISOLATION.fullmatch(span[1]) or re.search(r"[A-Za-zα-ωΑ-Ω]", beside):
                wrong.append(run)
    assert wrong == []


@each_page
def test_a_persian_number_does_not_follow_latin(page: Path) -> None:
    """Persian digits right after a Latin word are ordered with it, left to right."""
    seen = re.sub(rf"[^A-Za-zα-ωΑ-Ω{LETTER}۰-۹|\n]", "", words_only(page))
    assert re.findall(r"[A-Za-zα-ωΑ-Ω]+[۰-۹]+", seen) == []


@each_page
def test_every_paragraph_begins_in_persian(page: Path) -> None:
    """Code hosts give a paragraph the direction of its first strong letter outside elements with a ``dir``."""
    wrong = []
    for line in re.split(r"\n\s*\n|\n(?=[-|#>]|\d+\. )", without_blocks(page)):
        # Cells take their direction from the page.
        if line.startswith("|") or "<div" in line or "</div>" in line:
            continue
        seen = re.sub(r"\]\([^)]*\)", "]", _ISOLATED.sub("", line))
        first = re.search(_STRONG, seen)
        if first and not re.match(f"[{LETTER}]", first.group()):
            wrong.append(line)
    assert wrong == []


@each_page
@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"[يكة٠-٩ۀ]", "an Arabic letter or digit, or ۀ in place of هٔ"),
        (r"[\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff]", "an invisible mark of direction: use dir="),
        (rf"(?<![{LETTER}\u200c])ن?می (?=[{LETTER}])", "می parted from its verb by a space"),
        (rf"(?<=[{LETTER}]) (ها|های|هایی|هایش|تر|ترین|ام|اند)(?![{LETTER}\u200c])", "a suffix parted by a space"),
        (rf"(?<![{LETTER}])(ن?می|بی|پیش)\u200c(?![{LETTER}])", "a half-space before nothing"),
        (r"\u200c\u200c|\u200c[\s،؛؟.»)]|[\s«(]\u200c", "a half-space at the edge of a word"),
        (rf"[{LETTER}][,;?]", "Latin punctuation after a Persian letter"),
        (r" [،؛؟:.](?![\w/])", "a space before punctuation"),
        (
            r"(?<=[A-Za-z])(?<!Code)\)?، ?\(?(?!Code)[A-Za-z]",
            "Latin words beside a comma are ordered left to right: write «و» or «یا»",
        ),
        (rf"[،؛؟](?=[{LETTER}])", "no space after punctuation"),
        (r"«\s|\s»", "a space inside quotation marks"),
        (r"(?<![A-Za-z0-9._/+-])[0-9]+(?:[.,][0-9]+)*(?![A-Za-z0-9.])", "Latin digits in Persian prose"),
        (r"[۰-۹][.,][۰-۹]", "a Latin decimal point between Persian digits"),
    ],
)
def test_persian_is_well_set(page: Path, pattern: str, why: str) -> None:
    # The numbers of a list are drawn by the browser.
    text = re.sub(r"^\d+\. ", "", words_only(page), flags=re.MULTILINE)
    found = [text[max(0, m.start() - 20) : m.end() + 20] for m in re.finditer(pattern, text)]
    assert found == [], why


@each_page
def test_figures_are_those_of_the_transcripts(page: Path) -> None:
    """A figure in code is a quotation of what the tool prints on that page."""
    quoted = [
        code for code in code_spans(page) if re.fullmatch(r"[\d.,]+( – [\d.,]+)?( ?(GiB|B|×|%))?( of .*)?", code)
    ]
    elsewhere = DEFAULTS_AND_RELEASES.get(where(page), set())
    assert [code for code in quoted if code not in shown(page) and code not in elsewhere] == []


#: Figures in code that are in no transcript: checked by a test below, or facts of an engine's releases.
FIRST_EMITTED = (
    "specplan fit Qwen/Qwen3-8B --draft Qwen/Qwen3-0.6B --context 8192 --batch 4 --gpu a100-40gb --offline"
)
DEFAULTS_AND_RELEASES = {
    "docs/fa/memory.md": {"16.38 GB"},
    "docs/fa/choose-a-draft.md": {"152,064", "151,936"},
    "docs/fa/vllm.md": {"0.33.0", "0.11", "0.15", "0.20", "0.24", "0.25", "0.33", "0.90", "0.92"},
    "docs/fa/using-specplan.md": {"8192", "1", "15%"},
    "docs/fa/common-problems.md": {"0.21", "0.24", "0.25", "0.33", "0.02"},
}


@each_page
def test_numbers_of_the_prose_stand_in_the_english_pages(page: Path) -> None:
    sources = [text_of(source) for source in ENGLISH] + [shown(page)]
    known = {number.replace(",", "") for text in sources for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}
    written = {number.translate(_TO_LATIN) for number in _PERSIAN_NUMBER.findall(words_only(page))}
    assert {number for number in written if len(number) > 1} - known <= WORKED_OUT.get(where(page), set())


#: Persian numbers that no English page has: worked out by a test below.
WORKED_OUT = {
    "docs/fa/speculative-decoding.md": {
        *("0.8", "0.80", "0.64", "0.51", "0.41", "3.36", "0.59", "59"),
        *("0.2", "5.00", "3.82", "2.47", "1.87"),
        "12",  # "twelve" there
    },
}


def persian(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".translate(str.maketrans("0123456789.", "۰۱۲۳۴۵۶۷۸۹٫"))


def test_the_worked_example_of_the_four_figures() -> None:
    rate, k = 0.8, 4
    length = geometric_length(rate, k)
    page = text_of(PERSIAN / "speculative-decoding.md")
    assert f"| u | {' | '.join(persian(rate**position, 2) for position in range(1, k + 1))} |" in page
    assert f"L برابر {persian(length, 2)} است" in page
    assert f"پذیرفته ÷ پیشنهادی برابر {persian((length - 1) / k, 2)}" in page


def test_the_best_speedups_at_a_cost_ratio() -> None:
    """Leviathan et al. 2023, theorem 3.8, at the best k of 1 to 32."""
    page = text_of(PERSIAN / "speculative-decoding.md")
    assert f"| ۰ (سقف) | {persian(1 / (1 - 0.8), 2)} |" in page
    for cost, digits in ((0.02, 2), (0.1, 1), (0.2, 1)):
        best = max(geometric_length(0.8, k) / (k * cost + 1) for k in range(1, 33))
        assert f"| {persian(cost, digits)} | {persian(best, 2)} |" in page


def test_the_sum_of_the_cache() -> None:
    """Of both models, from their transcripts: sequences × tokens × bytes a token."""
    page = PERSIAN / "memory.md"
    [(per_target, per_draft)] = re.findall(r"\(([\d,]+) \+ ([\d,]+)\) B", "".join(blocks(page, "text")))
    assert all(f"KV cache {figure} B per token" in shown(page) for figure in (per_target, per_draft))
    total = 4 * 8192 * (int(per_target.replace(",", "")) + int(per_draft.replace(",", "")))
    assert f"4 × 8,192 × ({per_target} + {per_draft}) B = {total:,} B = {total / GIB:.2f} GiB" in text_of(page)


def test_gigabytes_are_not_gibibytes() -> None:
    [command] = re.findall(
        r"^\$ (specplan fit \S+ --draft Qwen/\S+ .*)$", text_of(PERSIAN / "memory.md"), re.MULTILINE
    )
    stored = report_of(command)["target"]["stored_bytes"]
    spans = code_spans(PERSIAN / "memory.md")
    assert f"{stored / GIB:.2f} GiB" in spans and f"{stored / GB:.2f} GB" in spans


def told_exit(command: str, printed: str) -> int:
    """What a transcript without ``echo $?`` says of the exit code."""
    drafts = command.startswith("specplan drafts ") and re.search(r"^Worth it\? +NO$", printed, re.MULTILINE)
    refused = re.search(r"^(DOES NOT FIT|FAILS AT START):", printed, re.MULTILINE)
    return 3 if drafts or refused else 0


@each_page
def test_transcripts_are_what_the_commands_print(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In order, in one folder."""
    for block in blocks(page, "console", "text"):
        ended = None
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            if command == "echo $?":
                assert (ended, printed) == (int(printed), f"{ended}\n")
                continue
            ended = main(shlex.split(command)[1:])
            assert capsys.readouterr().out == printed, command
            if "echo $?" not in block:
                assert ended == told_exit(command, printed), command


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", without_blocks(page))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def emitted() -> Iterator[object]:
    """Blocks that say in their first line which command made them."""
    for page in PAGES:
        for language in ("bash", "python"):
            for block in blocks(page, language):
                first, _, rest = block.partition("\n")
                if first.startswith("# specplan fit "):
                    yield pytest.param(
                        language, first.removeprefix("# "), rest, id=f"{where(page)}: {first}, {language}"
                    )


def test_there_are_commands_to_compare() -> None:
    assert len(list(emitted())) >= 5


@pytest.mark.parametrize(("language", "command", "written"), list(emitted()))
def test_commands_of_the_engine_are_what_specplan_emits(language: str, command: str, written: str) -> None:
    recommended = report_of(command)["recommendation"]
    if language == "bash":
        assert shlex.split(written.replace("\\\n", " ")) == recommended["command"]
    else:
        # As code: the formatter of this repository has other quotation marks.
        assert ast.dump(ast.parse(written)) == ast.dump(ast.parse(recommended["python"]))


def sessions() -> Iterator[object]:
    for page in PAGES:
        for block in blocks(page, "bash"):
            if not block.startswith("# specplan fit "):
                lines = block.replace("\\\n", " ").splitlines()
                yield pytest.param(lines, id=f"{where(page)}: {' '.join(lines[0].split())}")


@pytest.mark.parametrize("lines", list(sessions()))
def test_shell_blocks_run(lines: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    """In order, in one folder. What installs or takes a minute is run elsewhere; here its names must be right."""
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    for line in lines:
        words = shlex.split(line)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", text_of(ROOT / "Makefile"), re.MULTILINE)
        elif words[0] == "pip":
            assert words[1] == "install"
            assert set(re.findall(r"\[(\w+)\]", words[2])) <= set(project["optional-dependencies"])
        elif words[0] == "curl":
            ask_a_server(words)
        else:
            assert words[0] == "specplan", line
            # tests/cli run the embedded pair.
            typed = [*words[1:], "--help"] if words[1] == "trial" else words[1:]
            assert main(typed) == 0, capsys.readouterr().err


def ask_a_server(words: Sequence[str]) -> None:
    """Runs a request against a server that only keeps what it is asked: one of the two that vLLM answers."""
    asked: list[tuple[str, str]] = []

    class Keeper(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((f"{self.command} {self.path} {self.headers.get('Content-Type', '')}", body.decode()))
            self.send_response(200)
            self.end_headers()

        do_GET = do_POST = answer  # noqa: N815 (names of the standard library)

        def log_message(self, text: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keeper) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"127.0.0.1:{server.server_port}"
        told = [word.replace("localhost:8000", here) for word in words]
        subprocess.run([*told, "--noproxy", "*", "--fail", "--max-time", "20"], check=True)
        server.shutdown()
    [(request, body)] = asked
    if body:
        assert request == "POST /v1/completions application/json"
        assert json.loads(body)["model"] in report_of(FIRST_EMITTED)["recommendation"]["command"]
    else:
        assert request.startswith("GET /metrics")


def test_options_and_commands_are_ours(capsys: pytest.CaptureFixture[str]) -> None:
    known: set[str] = set()
    for name in COMMANDS:
        main([name, "--help"])
        known |= set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    named = {
        option for page in PAGES for code in code_spans(page) for option in re.findall(r"--[a-z][a-z-]+", code)
    }
    assert named - known <= ENGINE_OPTIONS
    told = " ".join(code_spans(PERSIAN / "using-specplan.md"))
    assert [name for name in COMMANDS if f"specplan {name}" not in told] == []


def test_fields_of_the_report_are_there() -> None:
    fields = re.findall(r"^\| `(\w+(?:\.\w+)*)` \|", text_of(PERSIAN / "using-specplan.md"), re.MULTILINE)
    fields = [field for field in fields if "." in field]
    assert len(fields) >= 5
    for field in fields:
        value: Any = report_of(FIRST_EMITTED)
        for key in field.split("."):
            value = value[key]
        assert value


@pytest.mark.parametrize("page", [PAGES[0], PERSIAN / "using-specplan.md"], ids=where)
def test_exit_codes_are_all_told(page: Path) -> None:
    codes = {code for _, code in EXIT_OF_ERROR} | set(EXIT_OF_ANSWER.values()) | {1}
    table = {
        int(code.translate(_TO_LATIN)) for code in re.findall(r"^\| ([۰-۹]+) \|", text_of(page), re.MULTILINE)
    }
    assert codes - {130} <= table


def test_every_known_problem_has_its_remedy() -> None:
    """Sections in the order of the table, each with its code and at least one thing to do."""
    sections = re.split(r"^### ", text_of(PERSIAN / "common-problems.md"), flags=re.MULTILINE)[1:]
    codes = [re.findall(r"شناسه: `(\w+)`", section) for section in sections]
    assert sorted(code for found in codes for code in found) == sorted(problem.code for problem in KNOWN_PROBLEMS)
    assert [section for section, found in zip(sections, codes, strict=True) if len(found) != 1] == []
    assert [section for section in sections if not re.search(r"^- ", section, re.MULTILINE)] == []
