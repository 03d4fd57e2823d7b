"""README and docs say what is so: their commands run, their transcripts are real, what they name is there.

``pytest --update-golden`` rewrites the transcripts too; then read the difference.
"""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
import pytest
import yaml
from doc_commands import (
    FENCED,
    FILES,
    LEFT_OUT,
    NOT_RUN,
    PAGES,
    ROOT,
    WITH_GPUS,
    Shown,
    fenced,
    matches,
    shown_commands,
    where,
)

from planner import nvml
from planner.cli.main import COMMANDS, group, main
from planner.commands.reading.read_llama_cpp import read_llama_cpp
from planner.commands.reading.read_sglang import read_sglang
from planner.commands.reading.read_tensorrt_llm import read_tensorrt_llm
from planner.commands.reading.read_vllm import read_vllm
from planner.commands.reading.split import find_engine, split_text
from planner.declared_gpus import parse_gpu_option
from planner.devices import DeviceSource
from planner.errors import NvmlMissingError
from planner.nvml import DeviceReading
from planner.service.exit_codes import EXIT_OF_ANSWER, EXIT_OF_ERROR
from planner.verdict import Answer

_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
#: A name in a usage line, and a model from the embedded catalogue in its place.
PLACEHOLDERS = {"TARGET": "Qwen/Qwen3-32B", "DRAFT": "Qwen/Qwen3-0.6B", "ORG/NAME": "Qwen/Qwen3-8B", "…": ""}
#: Programs whose options are their own, where the running text names one with its options.
OTHER_PROGRAMS = {"nvidia-smi", "pip"}
GPU = ["--gpu", "h100-80gb:2"]
#: First words of a verdict line, by answer.
VERDICTS = {
    "FITS": Answer.FITS,
    "TIGHT": Answer.TIGHT,
    "DOES NOT FIT": Answer.DOES_NOT_FIT,
    "CANNOT TELL": Answer.UNKNOWN,
    "STARTS": Answer.FITS,
    "MAY FAIL AT START": Answer.TIGHT,
    "FAILS AT START": Answer.DOES_NOT_FIT,
}


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def usages() -> Iterator[object]:
    """Commands in the running text, with names of the catalogue for their placeholders."""
    for page in PAGES:
        for text in dict.fromkeys(_INLINE.findall(prose(page))):
            words = text.removeprefix(".venv/bin/").split()
            if words[0] == "specplan":
                yield pytest.param(words[1:], id=f"{where(page)}: {text}")


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


def test_there_is_something_to_check() -> None:
    ours = [shown for page in PAGES for shown in shown_commands(page) if shown.program == "specplan"]
    assert sum(shown.printed is not None for shown in ours) >= 5
    assert sum(shown.not_run is None for shown in ours) >= 10
    assert len(list(usages())) >= len(COMMANDS)


def idle(gpus: str) -> DeviceReading:
    """GPUs that nobody uses, as the driver lists them."""
    devices = [
        replace(gpu, index=i, source=DeviceSource.NVML, uuid=f"GPU-{i}", driver_version="580.65.06", notes=())
        for i, gpu in enumerate(parse_gpu_option(gpus))
    ]
    return DeviceReading(
        devices=tuple(devices), driver_version="580.65.06", nvml_version="13.580", cuda_version="13.0"
    )


def expected_exit(shown: Shown) -> int:
    """What the page says of it: in figures, or by the verdict that it shows; without either it succeeds."""
    if shown.exit_code is not None:
        return shown.exit_code
    printed = shown.printed or ""
    told = [answer for words, answer in VERDICTS.items() if re.search(rf"^{words}:", printed, re.MULTILINE)]
    if shown.words[1] == "drafts" and printed:  # a table, not a verdict: it fits unless no draft is worth it
        told = [Answer.DOES_NOT_FIT if re.search(r"^Worth it\? +NO$", printed, re.MULTILINE) else Answer.FITS]
    return max((EXIT_OF_ANSWER[answer] for answer in told), default=0)


def as_run(shown: Shown, *, live: bool) -> list[str]:
    """Its words, with what a page need not say: that there is no network here, and no time for a trial."""
    name, *arguments = shown.words[1:]
    options = {option for parameter in command_of(name).params for option in parameter.opts}
    at = arguments.index("--") if "--" in arguments else len(arguments)
    if shown.printed is not None:
        added = []  # exactly what stands there
    else:
        added = [word for word in ("--offline",) if word in options and word not in arguments]
    if live and name == "fit" and "--gpu" not in arguments:
        added.append("--no-trial")
    return [name, *arguments[:at], *added, *arguments[at:]]


def command_of(name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None, f"there is no specplan {name}"
    return found


def printed_by(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code, and what is on stdout; where that is empty, on stderr."""
    words, into = (words[: words.index(">")], words[-1]) if ">" in words else (words, None)
    exit_code = main(words)
    told = capsys.readouterr()
    if into is not None:
        Path(into).write_text(told.out, encoding="utf-8")
        return exit_code, ""
    return exit_code, told.out or told.err


def updated(page: Path, shown: Shown, out: str) -> Shown:
    """The page with what the command prints now; one that leaves lines out is changed by hand."""
    if shown.printed is None or LEFT_OUT in shown.printed.splitlines():
        return shown
    text, block = page.read_text(encoding="utf-8"), f"$ {shown.command}\n"
    page.write_text(text.replace(block + shown.printed, block + out), encoding="utf-8")
    return replace(shown, printed=out)


def with_commands(*programs: str) -> list[Path]:
    return [page for page in PAGES if any(shown.programs & {*programs} for shown in shown_commands(page))]


@pytest.mark.parametrize("page", with_commands("specplan"), ids=where)
def test_the_commands_of_a_page_run_and_print_what_it_says(
    page: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """In order, in one folder. What cannot run here is parsed: ``doc_commands.NOT_RUN`` has the reasons."""
    gpus = WITH_GPUS.get(where(page))
    if gpus is not None:
        monkeypatch.setattr(nvml, "read_devices", lambda: idle(gpus))
        monkeypatch.setattr("planner.cli.devices.read_devices", lambda: idle(gpus))
    for name, source in FILES.get(where(page), {}).items():
        shutil.copy(source, name)
    for said in shown_commands(page):
        shown = said
        if shown.program == "cat" and shown.printed is not None:
            Path(shown.words[1]).parent.mkdir(exist_ok=True)
            Path(shown.words[1]).write_text(shown.printed, encoding="utf-8")
        if shown.program != "specplan":
            continue
        if shown.not_run is not None:
            with command_of(shown.words[1]).make_context(shown.words[1], shown.words[2:]):
                continue
        for name, value in shown.environment.items():
            monkeypatch.setenv(name, value)
        exit_code, out = printed_by(as_run(shown, live=gpus is not None), capsys)
        if request.config.getoption("--update-golden"):
            shown = updated(page, shown, out)
        assert exit_code == expected_exit(shown), f"{shown.command}\n{out}"
        if shown.printed is not None and not matches(shown.printed, out):
            assert out == shown.printed, shown.command


def test_what_is_not_run_is_on_some_page() -> None:
    lines = [" ".join(shown.words) for page in PAGES for shown in shown_commands(page) if shown.words]
    assert [pattern for pattern in NOT_RUN if not any(re.fullmatch(pattern, line) for line in lines)] == []


@pytest.mark.parametrize("page", with_commands("make"), ids=where)
def test_make_knows_the_targets(page: Path) -> None:
    for shown in shown_commands(page):
        if shown.program == "make":
            dry = ["make", "-n", *shown.words[1:]]
            ran = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=False)
            assert (ran.returncode, ran.stderr) == (0, ""), shown.command


ENGINES = {
    "vllm": read_vllm,
    "sglang": read_sglang,
    "llama-server": read_llama_cpp,
    "trtllm-serve": read_tensorrt_llm,
}


@pytest.mark.parametrize("page", with_commands(*ENGINES), ids=where)
def test_engines_know_the_options(page: Path) -> None:
    for shown in shown_commands(page):
        for name in shown.programs & {*ENGINES}:
            reading = ENGINES[name](find_engine(split_text(shown.command)).words)
            assert [unknown.option for unknown in reading.unknown] == []


@pytest.mark.parametrize("page", PAGES, ids=where)
def test_extras_are_ours(page: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"specplan\[([\w,]+)\]", page.read_text(encoding="utf-8"))
    assert {extra for text in named for extra in text.split(",")} <= set(project["optional-dependencies"])


@pytest.mark.parametrize("words", list(usages()))
def test_a_command_in_the_text_runs(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    typed = [PLACEHOLDERS.get(word.strip("[]"), word) for word in words if word != "[NAME]"]
    command, arguments = typed[0], [word for word in typed[1:] if word]
    # tests/cli run these: they take a minute, or a file that is not here.
    if command in {"trial", "check", "check-command", "explain-log"}:
        arguments = ["--help"]
    if command in {"fit", "drafts", "gpus", "doctor"} and "--help" not in arguments:
        arguments.append("--offline")
    if command in {"fit", "drafts"} and "--gpu" not in arguments and "--help" not in arguments:
        arguments += ["Qwen/Qwen3-32B"] * (not arguments or arguments[0].startswith("--")) + GPU
    # Without a driver there is nothing to list.
    expected = 6 if command == "devices" else 0
    assert main([command, *arguments]) == expected, capsys.readouterr().err


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`specplan {name}" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=where)
def test_options_are_ours(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known: set[str] = set()
    for name in COMMANDS:
        main([name, "--help"])
        known |= set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    texts = [text for text in _INLINE.findall(prose(page)) if text.split()[0] not in OTHER_PROGRAMS]
    named = {option for text in texts for option in re.findall(r"--[a-z][a-z-]+", text)}
    assert named <= known | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=where)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [link for link in _LINK.findall(text) if "://" not in link and not (page.parent / link).exists()]
    paths = [
        path for path in _INLINE.findall(text) if re.fullmatch(r"(planner|model_catalog|tests|docs)/\S+", path)
    ]
    missing += [path for path in paths if not (any(ROOT.glob(path)) or (ROOT / path).exists())]
    assert missing == []


def architecture_entries() -> list[tuple[str, str]]:
    """(package, name or pattern) of the tree in docs/architecture.md; names stand before two spaces."""
    entries, package = [], ""
    for line in next(
        text for language, text in fenced(ROOT / "docs" / "architecture.md") if not language
    ).splitlines():
        if not line.startswith(" "):
            package = line.rstrip("/")
            continue
        names = re.split(r"\s{2,}", line.strip())[0]
        entries += [(package, name.strip().rstrip("/")) for name in names.split(",")]
    return entries


def test_the_tree_of_the_architecture_page_is_the_code() -> None:
    """Every name in it exists, and every module and folder of the two packages is named."""
    named: set[Path] = set()
    for package, name in architecture_entries():
        found = {*(ROOT / package).glob(name), *(ROOT / package).glob(f"{name}.py")}
        assert found, f"{package}/{name} is not there"
        named |= found
    for package in ("planner", "model_catalog"):
        present = {path for path in (ROOT / package).iterdir() if path.suffix == ".py" or path.is_dir()}
        unnamed = {path.name for path in present - named} - {"__init__.py", "__pycache__"}
        assert unnamed == set(), f"docs/architecture.md does not name them in {package}"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "architecture.md"], ids=where)
def test_exit_codes_are_all_told(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    codes = {code for _, code in EXIT_OF_ERROR} | set(EXIT_OF_ANSWER.values()) | {1}
    table = set(map(int, re.findall(r"^\| (\d+) \|", text, re.MULTILINE)))
    sentence = re.search(r"\*\*Exit codes\*\*.*?\n\n", text, re.DOTALL)
    listed = table or set(map(int, re.findall(r"(?:^|[:,\n] ?)(\d+) ", sentence.group() if sentence else "")))
    assert codes <= listed


def test_every_page_is_in_the_navigation() -> None:
    """Add yours to ``nav`` in mkdocs.yml, where readers will look for it."""
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]

    def leaves(node: object) -> Iterator[str]:
        if isinstance(node, str):
            yield node
        for below in node if isinstance(node, list) else node.values() if isinstance(node, dict) else ():
            yield from leaves(below)

    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    listed = list(leaves(navigation))
    assert sorted(listed) == sorted(pages)
