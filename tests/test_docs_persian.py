"""The Persian pages are as true as the English ones: figures, numbers, the engine's commands, nothing left out.

Their transcripts, links and commands are run with those of all pages, in ``test_docs``.
"""

import ast
import contextlib
import http.server
import io
import json
import re
import shlex
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from doc_commands import ROOT, shown_commands, where
from persian_pages import PAGES, PERSIAN, TO_LATIN, blocks, code_spans, printed_on, text_of, words_only

from model_catalog.units import GB, GIB
from planner.cli.main import COMMANDS, main
from planner.service.exit_codes import EXIT_OF_ANSWER, EXIT_OF_ERROR
from planner.speculation.diagnosis import KNOWN_PROBLEMS
from planner.speculation.mean_length import geometric_length

#: Pages that the numbers of the Persian prose come from; the tables of the accuracy page hold nearly every number.
ENGLISH = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("concepts/*.md")),
    *sorted((ROOT / "docs").glob("guides/*.md")),
]
_NUMBER = re.compile(r"[۰-۹]+(?:٫[۰-۹]+)?")
#: Options of engines that the pages name; that the engine has them is checked where its command is emitted.
ENGINE_OPTIONS = {"--speculative-config"}
EXAMPLE = "specplan fit Qwen/Qwen3-8B --draft Qwen/Qwen3-0.6B --context 8192 --batch 4 --gpu a100-40gb --offline"
#: Figures in code that are in no transcript: checked by a test below, or facts of an engine's releases.
DEFAULTS_AND_RELEASES = {
    "docs/fa/memory.md": {"16.38 GB"},
    "docs/fa/choose-a-draft.md": {"152,064", "151,936"},
    "docs/fa/vllm.md": {"0.33.0", "0.11", "0.15", "0.20", "0.24", "0.25", "0.33", "0.90", "0.92"},
    "docs/fa/using-specplan.md": {"8192", "1", "15%"},
    "docs/fa/common-problems.md": {"0.21", "0.24", "0.25", "0.33", "0.02"},
}
#: Persian numbers that no English page has: worked out by a test below.
WORKED_OUT = {
    "docs/fa/speculative-decoding.md": {
        *("0.8", "0.80", "0.64", "0.51", "0.41", "3.36", "0.59", "59"),
        *("0.2", "5.00", "3.82", "2.47", "1.87"),
        "12",  # "twelve" there
    },
}

each_page = pytest.mark.parametrize("page", PAGES, ids=where)


@cache
def report_of(command: str) -> dict[str, Any]:
    """The JSON report of a ``specplan fit`` command line."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main([*shlex.split(command)[1:], "--json", "-"])
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


@pytest.fixture(autouse=True)
def nothing_of_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, no settings and caches of the user's."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_the_pages_are_there() -> None:
    assert len(PAGES) >= 10
    assert "[فارسی](README.fa.md)" in text_of(ROOT / "README.md")


@each_page
def test_figures_are_those_of_the_transcripts(page: Path) -> None:
    """A figure in code is a quotation of what the tool prints on that page."""
    quoted = [
        code for code in code_spans(page) if re.fullmatch(r"[\d.,]+( – [\d.,]+)?( ?(GiB|B|×|%))?( of .*)?", code)
    ]
    elsewhere = DEFAULTS_AND_RELEASES.get(where(page), set())
    assert [code for code in quoted if code not in printed_on(page) and code not in elsewhere] == []


@each_page
def test_numbers_of_the_prose_stand_in_the_english_pages(page: Path) -> None:
    sources = [text_of(source) for source in ENGLISH] + [printed_on(page)]
    known = {number.replace(",", "") for text in sources for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}
    written = {number.translate(TO_LATIN) for number in _NUMBER.findall(words_only(page))}
    assert {number for number in written if len(number) > 1} - known <= WORKED_OUT.get(where(page), set())


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
    assert all(f"KV cache {figure} B per token" in printed_on(page) for figure in (per_target, per_draft))
    total = 4 * 8192 * (int(per_target.replace(",", "")) + int(per_draft.replace(",", "")))
    assert f"4 × 8,192 × ({per_target} + {per_draft}) B = {total:,} B = {total / GIB:.2f} GiB" in text_of(page)


def test_gigabytes_are_not_gibibytes() -> None:
    [command] = re.findall(
        r"^\$ (specplan fit \S+ --draft Qwen/\S+ .*)$", text_of(PERSIAN / "memory.md"), re.MULTILINE
    )
    stored = report_of(command)["target"]["stored_bytes"]
    spans = code_spans(PERSIAN / "memory.md")
    assert f"{stored / GIB:.2f} GiB" in spans and f"{stored / GB:.2f} GB" in spans


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


def lines_of(*programs: str) -> Iterator[object]:
    for page in PAGES:
        for shown in shown_commands(page):
            if shown.program in programs:
                yield pytest.param(shown.words, id=f"{where(page)}: {' '.join(shown.words)}")


@pytest.mark.parametrize("words", list(lines_of("pip")))
def test_what_is_installed_is_ours(words: Sequence[str]) -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    assert words[1] == "install"
    assert set(re.findall(r"\[(\w+)\]", words[2])) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("words", list(lines_of("curl")))
def test_a_server_can_read_the_requests(words: Sequence[str]) -> None:
    """Sent to a server that only keeps what it is asked: one of the two requests that vLLM answers."""
    if shutil.which("curl") is None:
        pytest.skip("no curl")
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
        assert json.loads(body)["model"] in report_of(EXAMPLE)["recommendation"]["command"]
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
        value: Any = report_of(EXAMPLE)
        for key in field.split("."):
            value = value[key]
        assert value


@pytest.mark.parametrize("page", [PAGES[0], PERSIAN / "using-specplan.md"], ids=where)
def test_exit_codes_are_all_told(page: Path) -> None:
    codes = {code for _, code in EXIT_OF_ERROR} | set(EXIT_OF_ANSWER.values()) | {1}
    table = {int(code.translate(TO_LATIN)) for code in re.findall(r"^\| ([۰-۹]+) \|", text_of(page), re.MULTILINE)}
    assert codes - {130} <= table


def test_every_known_problem_has_its_remedy() -> None:
    """Sections in the order of the table, each with its code and at least one thing to do."""
    sections = re.split(r"^### ", text_of(PERSIAN / "common-problems.md"), flags=re.MULTILINE)[1:]
    codes = [re.findall(r"شناسه: `(\w+)`", section) for section in sections]
    assert sorted(code for found in codes for code in found) == sorted(problem.code for problem in KNOWN_PROBLEMS)
    assert [section for section, found in zip(sections, codes, strict=True) if len(found) != 1] == []
    assert [section for section in sections if not re.search(r"^- ", section, re.MULTILINE)] == []
