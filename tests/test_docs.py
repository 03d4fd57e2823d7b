"""README and docs say what is so: their commands run, their transcripts are real, what they name is there.

``pytest --update-golden`` rewrites the transcripts too; then read the difference.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner import nvml
from planner.cli.main import COMMANDS, main
from planner.errors import NvmlMissingError
from planner.service.exit_codes import EXIT_OF_ANSWER, EXIT_OF_ERROR
from planner.verdict import Answer

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
#: A name in a usage line, and a model from the embedded catalogue in its place.
PLACEHOLDERS = {"TARGET": "Qwen/Qwen3-32B", "DRAFT": "Qwen/Qwen3-0.6B", "ORG/NAME": "Qwen/Qwen3-8B", "…": ""}
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


def blocks(page: Path, language: str) -> list[str]:
    found = _FENCED.findall(page.read_text(encoding="utf-8"))
    return [text for tag, text in found if tag == language]


def prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def where(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def transcripts() -> Iterator[object]:
    """Commands after a ``$``, each with what the page says it prints."""
    for page in PAGES:
        for block in blocks(page, "console"):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, printed = part.partition("\n")
                if command.startswith("specplan "):
                    yield pytest.param(page, command, printed, id=f"{where(page)}: {command}")


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
    assert len(list(transcripts())) >= 1
    assert len(list(usages())) >= len(COMMANDS)


@pytest.mark.parametrize(("page", "command", "printed"), list(transcripts()))
def test_a_transcript_is_what_the_command_prints(
    page: Path, command: str, printed: str, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    exit_code = main(shlex.split(command)[1:])
    shown = capsys.readouterr().out
    if request.config.getoption("--update-golden"):
        text = page.read_text(encoding="utf-8")
        old, printed = f"$ {command}\n{printed}", shown
        page.write_text(text.replace(old, f"$ {command}\n{shown}"), encoding="utf-8")
    assert shown == printed
    told = [answer for words, answer in VERDICTS.items() if re.search(rf"^{words}:", printed, re.MULTILINE)]
    if command.startswith("specplan drafts "):  # a table, not a verdict: it fits unless no draft is worth it
        told = [Answer.DOES_NOT_FIT if re.search(r"^Worth it\? +NO$", printed, re.MULTILINE) else Answer.FITS]
    assert [EXIT_OF_ANSWER[answer] for answer in told] == [exit_code]


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
    named = {option for text in _INLINE.findall(prose(page)) for option in re.findall(r"--[a-z][a-z-]+", text)}
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
    for line in blocks(ROOT / "docs" / "architecture.md", "")[0].splitlines():
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


@pytest.mark.parametrize("page", [PAGES[0], ROOT / "docs" / "architecture.md"], ids=where)
def test_exit_codes_are_all_told(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    codes = {code for _, code in EXIT_OF_ERROR} | set(EXIT_OF_ANSWER.values()) | {1}
    table = set(map(int, re.findall(r"^\| (\d+) \|", text, re.MULTILINE)))
    sentence = re.search(r"\*\*Exit codes\*\*.*?\n\n", text, re.DOTALL)
    listed = table or set(map(int, re.findall(r"(?:^|[:,\n] ?)(\d+) ", sentence.group() if sentence else "")))
    assert codes <= listed
