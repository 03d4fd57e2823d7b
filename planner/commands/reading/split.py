"""From a text to the engine that it starts and the words that the engine gets. Nothing is run or expanded.

Understands leading assignments, ``env``, a few launchers, ``bash -c``, ``docker run`` (its image's arguments) and
other commands before and after. What stands before the engine's name is forgotten, save CUDA_VISIBLE_DEVICES.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from model_catalog.errors import UsageError
from planner.commands.reading.shell import END, split_script

MOST_CHARACTERS: Final = 64 << 10
_MOST_WORDS: Final = 2000
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,100})=(.*)", re.ASCII | re.DOTALL)
_PYTHON: Final = re.compile(r"python(?:3(?:\.\d{1,2})?)?", re.ASCII)
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
#: Where a shell would begin another command: what follows is not the engine's.
_ENDS: Final = frozenset({END, "&&", "||", "|", "&", ">", ">>", "<", "2>", "2>&1", "&>", "2>>"})
_SHELLS: Final = frozenset({"bash", "sh", "dash", "zsh"})
_SHELL_TEXT: Final = re.compile(r"-[a-z]{0,5}c", re.ASCII)
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_LLAMA: Final = frozenset({"llama-server", "llama-server.exe", "llama-cli", "server"})
#: What else `trtllm-serve` does: these start no server of one model.
_TENSORRT_OTHERS: Final = (["disaggregated"], ["disaggregated_mpi_worker"], ["mm_embedding_serve"], ["embeddings"])
_MODULES: Final = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "sglang.launch_server": "sglang",
}
#: Images by a part of their name, for arguments that name no program.
_IMAGES: Final = (("vllm", "vllm"), ("sglang", "sglang"), ("llama", "llama.cpp"))
_DOCKER_SWITCHES: Final = frozenset(
    {"-d", "--detach", "-i", "-t", "-it", "-ti", "-dit", "-itd", "-P", "--rm", "--init", "--privileged"}
    | {"--interactive", "--tty", "--read-only", "--publish-all", "--no-healthcheck", "--oom-kill-disable", "-q"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The engine's name and what follows its program. ``visible``: CUDA_VISIBLE_DEVICES where it was set."""

    engine: str
    words: tuple[str, ...]
    visible: str | None = None


def split_text(text: str) -> tuple[str, ...]:
    """The words of a pasted command, as a POSIX shell splits them.

    Raises:
        UsageError: too long, empty, or a quotation that does not end.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"is longer than {MOST_CHARACTERS >> 10} KiB", subject="the command", hint="give one command only"
        )
    return split_script(text.replace("\r\n", "\n"))


def find_engine(words: Sequence[str]) -> Words:
    """Which engine the words start, and its own words.

    Raises:
        UsageError: they start none that is known.
    """
    if len(words) > _MOST_WORDS or sum(map(len, words)) > MOST_CHARACTERS:
        raise UsageError("is too long", subject="the command", hint="give one command only")
    visible: str | None = None
    refused: UsageError | None = None
    for command in _commands(words):
        try:
            found, visible = _in_command(command, visible)
        except UsageError as error:
            # `docker stop` before `docker run`: another of the commands may be the one.
            refused = refused or error
            continue
        if found is not None:
            return found
    raise refused or UsageError(
        "starts no engine that is known",
        subject="the command",
        hint="give it as: vllm serve MODEL ..., python -m sglang.launch_server ..., trtllm-serve MODEL ... or "
        "llama-server -m FILE ...",
    )


def _in_command(left: list[str], visible: str | None) -> tuple[Words | None, str | None]:
    """The engine that one command starts, if any; and CUDA_VISIBLE_DEVICES as it is after it.

    Raises:
        UsageError: it runs a container of no known engine.
    """
    while left:
        word = left[0]
        assigned = _ASSIGNMENT.fullmatch(word)
        if assigned is not None:
            visible = assigned[2] if assigned[1] == _VISIBLE else visible
        elif word in _CONTAINERS or word.endswith(("/docker", "/podman")):
            return _in_container(left[1:], visible), visible
        elif word.rpartition("/")[2] in _SHELLS and len(left) > 2 and _SHELL_TEXT.fullmatch(left[1]):
            inner = find_engine(split_text(left[2]))
            return replace(inner, visible=visible if inner.visible is None else inner.visible), visible
        else:
            found = _started(left)
            if found is not None:
                return Words(engine=found[0], words=tuple(found[1]), visible=visible), visible
        left = left[1:]
    return None, visible


def _commands(words: Sequence[str]) -> Iterator[list[str]]:
    """The words of each command."""
    command: list[str] = []
    for word in words:
        if word in _ENDS:
            yield command
            command = []
        else:
            command.append(word)
    yield command


def _started(words: list[str]) -> tuple[str, list[str]] | None:
    """The engine whose program stands first, with the words after it."""
    program, rest = words[0].rpartition("/")[2], words[1:]
    if program == "vllm" and rest[:1] == ["serve"]:
        return "vllm", rest[1:]
    if program == "sglang" and rest[:1] == ["serve"]:
        return "sglang", rest[1:]
    if program == "trtllm-serve" and rest[:1] not in _TENSORRT_OTHERS:
        return "tensorrt-llm", rest[1:] if rest[:1] == ["serve"] else rest
    if program in _LLAMA:
        return "llama.cpp", rest
    if _PYTHON.fullmatch(program) and "-m" in rest:
        place = rest.index("-m")
        engine = _MODULES.get(rest[place + 1]) if place + 1 < len(rest) else None
        if engine is not None:
            after = rest[place + 2 :]
            return engine, after[1:] if after[:1] == ["serve"] else after
    return None


def _in_container(words: list[str], visible: str | None) -> Words:
    """The arguments of a container's image; which engine it holds, its name says.

    Raises:
        UsageError: there is no such image.
    """
    for place, word in enumerate(words):
        if word.startswith(f"{_VISIBLE}=") and place and words[place - 1] in {"-e", "--env"}:
            visible = word.partition("=")[2]
    place = 0
    while place < len(words) and words[place] in {"run", "container", "exec"}:
        place += 1
    while place < len(words) and words[place].startswith("-"):
        option = words[place]
        place += 1 if option in _DOCKER_SWITCHES or "=" in option else 2
    after = words[place + 1 :]
    # The image's own command, or an entry point of it that is named again.
    if after:
        found = _started(after)
        if found is not None:
            return Words(engine=found[0], words=tuple(found[1]), visible=visible)
    image = words[place].lower() if place < len(words) else ""
    engine = next((engine for part, engine in _IMAGES if part in image), None)
    if engine is None:
        raise UsageError(
            "the container's image is none of a known engine",
            subject="the command",
            hint="give what it runs: vllm serve MODEL ...",
        )
    return Words(engine=engine, words=tuple(after), visible=visible)
