"""What ``llama-server`` is started with: files, and options that this very release knows. Standard library only.

Options are spelled as in the command that we write, else as in older releases; which of them exist is read from
``--help``. Sources: llama.cpp ``common/arg.cpp`` of b10434 and b11434 (current names, and those that only answer
"the argument has been removed"), and of releases of 2024 and 2025 (``--draft-max``, ``--ctx-size-draft``).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: What ``engine_options`` may hold. ``arguments``: further words for both starts.
KNOWN_OPTIONS: Final = frozenset({"server", "arguments", "target_file", "draft_file", "start_seconds"})
#: Said by the trial itself, in any spelling.
_OURS: Final = frozenset(
    {
        *("-m", "--model", "-mu", "--model-url", "-hf", "--hf-repo", "-md", "--model-draft", "--spec-draft-model"),
        *("-hfd", "--hf-repo-draft", "--spec-draft-hf", "--host", "--port", "-np", "--parallel", "--api-key"),
        *("--api-prefix", "--spec-type", "--spec-draft-n-max", "--draft-max", "--draft", "--draft-n", "--metrics"),
    }
)
_NAMES: Final = re.compile(r"^(-{1,2}[a-zA-Z][\w-]*(?:,\s+-{1,2}[a-zA-Z][\w-]*)*)(.*)$")
_PART: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
#: llama.cpp pads a context to this many tokens itself.
_CONTEXT_STEP: Final = 256


class OptionsError(Exception):
    """The request cannot be brought to llama.cpp; ``code`` is one of the protocol's."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """What ``--help`` tells: the names that may be given, and its whole text."""

    names: frozenset[str]
    text: str

    @classmethod
    def of(cls, text: str) -> "Help":
        """Read a help text. Entries begin in the first column; removed ones say so."""
        names: set[str] = set()
        lines = text.splitlines()
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            found = _NAMES.match(line)
            # What an entry says begins in its own line, or indented in the next.
            if found and "argument has been removed" not in found[2] + (following if following[:1] == " " else ""):
                names.update(re.split(r",\s+", found[1]))
        return cls(names=frozenset(names), text=text)

    def first(self, *names: str) -> str | None:
        """The first of the names that is known."""
        return next((name for name in names if name in self.names), None)


def check_options(options: Mapping[str, Any]) -> list[str]:
    """The further arguments among the engine's options.

    Raises:
        OptionsError: "engine_options", for an option that is unknown, of another type or not the user's to set.
    """
    if unknown := sorted(set(options) - KNOWN_OPTIONS):
        raise OptionsError("engine_options", f"llama.cpp's trial knows no option {', '.join(unknown)}")
    further = options.get("arguments", [])
    if not isinstance(further, list | tuple) or not all(isinstance(word, str) for word in further):
        raise OptionsError("engine_options", "arguments must be a list of strings")
    for word in further:
        if word.partition("=")[0] in _OURS:
            raise OptionsError("engine_options", f"the trial itself sets {word}")
    return list(further)


def gguf_file(folder: str, named: str | None = None) -> Path:
    """The one GGUF file of a folder: of a split one its first part. ``named``: a name in the folder, or a path.

    Projectors of vision models (``mmproj*``) do not count.

    Raises:
        OptionsError: "weights", where there is none, or more than one.
    """
    place = Path(folder)
    if named is not None:
        file = place / named
        if not file.is_file():
            raise OptionsError("weights", f"there is no file {file}")
        return file
    try:
        files = sorted(file for file in place.iterdir() if file.suffix == ".gguf" and file.is_file())
    except OSError as error:
        raise OptionsError("weights", f"{place} cannot be read: {error.strerror or error}") from error
    files = [file for file in files if not file.name.startswith("mmproj") and _is_first(file)]
    if not files:
        raise OptionsError("weights", f"llama.cpp needs GGUF files, and there is no *.gguf in {place}")
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:5])
        raise OptionsError("weights", f"llama.cpp needs one GGUF file, and {place} holds {len(files)}: {names}")
    return files[0]


def _is_first(file: Path) -> bool:
    part = _PART.search(file.name)
    return part is None or int(part[1]) == 1


def file_bytes(file: Path) -> int:
    """The size of a GGUF file, with all parts of a split one."""
    part = _PART.search(file.name)
    if part is None:
        return file.stat().st_size
    stem = file.name[: part.start()]
    return sum(each.stat().st_size for each in file.parent.glob(f"{stem}-?????-of-{part[2]}.gguf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of the server. ``draft`` None: without speculation. ``device``: "cpu", "cuda" or "cuda:1"."""

    target: Path
    draft: Path | None
    k: int
    device: str
    context_tokens: int
    threads: int | None
    further: tuple[str, ...] = ()

    def arguments(self, known: Help) -> list[str]:
        """All words after the server's name, but host and port.

        Raises:
            OptionsError: "engine_refused", where this release takes no draft model.
        """
        return [*self._common(known), *(self._speculation(known, self.draft) if self.draft else ()), *self.further]

    def _common(self, known: Help) -> Iterator[str]:
        yield from ("--model", str(self.target), "--parallel", "1", "--ctx-size", str(self.context_tokens))
        yield from ("--n-gpu-layers", self._layers(known), *self._device("--device", known))
        if self.threads is not None:
            yield from ("--threads", str(self.threads), "--threads-batch", str(self.threads))
        yield from _where_known(known, "--fit", "off")
        # Acceptance by position; without a store of old prompts, whose filling would fall between requests.
        yield from _where_known(known, "--metrics")
        yield from _where_known(known, "--cache-ram", "0")
        yield from _where_known(known, "--offline")
        if "4: trace" in known.text:  # buffers are told at this level; older releases always tell them
            yield from ("--verbosity", "4")

    def _speculation(self, known: Help, draft: Path) -> Iterator[str]:
        model = known.first("--spec-draft-model", "--model-draft")
        depth = known.first("--spec-draft-n-max", "--draft-max")
        if model is None or depth is None:
            raise OptionsError("engine_refused", "this llama-server takes no draft model")
        if "draft-simple" in known.text:  # older releases take any draft that is named
            yield from ("--spec-type", "draft-simple")
        yield from (model, str(draft), depth, str(self.k))
        # Always k proposals: older releases drop short drafts, and stop drafting at a doubt.
        for names in (("--spec-draft-n-min", "--draft-min"), ("--spec-draft-p-min", "--draft-p-min")):
            if name := known.first(*names):
                yield from (name, "0")
        if name := known.first("--spec-draft-ngl", "--gpu-layers-draft"):
            yield from (name, self._layers(known))
        if name := known.first("--spec-draft-device", "--device-draft"):
            yield from self._device(name, known)
        yield from _where_known(known, "--ctx-size-draft", str(self.context_tokens))

    def _layers(self, known: Help) -> str:
        if self.device == "cpu":
            return "0"
        return "all" if "'all'" in known.text else "999"

    def _device(self, option: str, known: Help) -> Iterator[str]:
        """A build for GPUs would use one unasked; "cuda" leaves it all that are visible."""
        del known
        if self.device == "cpu":
            yield from (option, "none")
        elif ":" in self.device:
            yield from (option, f"CUDA{self.device.partition(':')[2]}")


def _where_known(known: Help, name: str, *values: str) -> Iterator[str]:
    if name in known.names:
        yield from (name, *values)


def context_tokens(longest_bytes: int, new_tokens: int, k: int) -> int:
    """A context that holds the longest prompt: text has no more tokens than bytes, but for a few at its start."""
    needed = longest_bytes + 8 + new_tokens + k + 2
    return -(-needed // _CONTEXT_STEP) * _CONTEXT_STEP
