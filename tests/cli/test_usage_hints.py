"""Mistyped command lines: what is wrong, and what to type next."""

import pytest

from planner.cli.main import COMMANDS, main
from planner.cli.usage_hints import EXAMPLES

FIT = ("fit", "Qwen/Qwen3-8B", "--gpu", "l4", "--offline")


@pytest.mark.parametrize(
    ("typed", "error", "hint"),
    [
        (["fti"], "specplan: no such command 'fti'", "did you mean fit? `specplan --help` lists the commands"),
        (["check-comand", "x"], "no such command 'check-comand'", "did you mean check-command"),
        (["help"], "no such command 'help'", "`specplan --help` lists the commands"),
        (["Qwen/Qwen3-8B"], "no such command", "to plan a model: specplan fit Qwen/Qwen3-8B;"),
        (["."], "no such command '.'", "to plan a model: specplan fit .;"),
        (["a/b; rm -rf x"], "no such command", "specplan fit 'a/b; rm -rf x';"),
        (["--verson"], "no such option '--verson'", "did you mean --version?"),
        (["fit", "--bach", "3"], "specplan fit: no such option '--bach'", "did you mean --batch?"),
        (["fit", "x", "-v"], "no such option '-v'", "did you mean --verbose?"),
        (["gpus", "-v"], "no such option '-v'", "`specplan gpus --help` lists what it takes"),
        (["fit"], "specplan fit: missing argument 'TARGET'", "for example: specplan fit Qwen/Qwen3-8B --gpu l4;"),
        (["trial", "x"], "specplan trial: missing argument 'DRAFT'", "for example: specplan trial specplan/tiny"),
        (["completion"], "missing argument '{bash|zsh|fish}'\n", "for example: specplan completion bash;"),
        (["fit", "x", "y z"], "specplan fit: 'y z' is one word too many", "a draft is named with --draft y."),
        (["devices", "x"], "specplan devices: 'x' is one word too many", "leave it out"),
        (["fit", "x", "--color"], "--color: its value is missing", "write --color auto|always|never;"),
        (["fit", "x", "--gpu"], "--gpu: its value is missing", "write --gpu NAME[:N];"),
        (["fit", "x", "--context", "64k"], "--context: '64k' may mean 65536 or 64000", "give a whole number"),
        (["fit", "x", "--quiet=1"], "--quiet: takes no value", "write --quiet alone"),
        (
            ["fit", "x", "--task", "chatt"],
            "--task: 'chatt' is none of its values",
            "did you mean chat? Use one of ",
        ),
        (["doctor", "--color", "pink"], "--color: 'pink' is none of its values", "use one of auto, always, never"),
        (["fit", "x", "--trial-top", "11"], "--trial-top: 11 is out of range", "a whole number from 1 to 10"),
        (
            ["fit", "x", "--trial-top", "a"],
            "--trial-top: 'a' is not a whole number",
            "a whole number from 1 to 10",
        ),
        (["trial", "a", "b", "--temperature", "hot"], "--temperature: 'hot' is not a number", "from 0.0 to 5.0"),
        ([*FIT, "--engine", "vlm"], "--engine: no engine 'vlm' is known", "did you mean vllm? Use one of vllm, "),
        ([*FIT, "--engine", "lmdeploy"], "no engine 'lmdeploy' is known", "hint: use one of vllm, "),
        ([*FIT, "--also-for", "slang"], "--also-for: no engine 'slang' is known", "did you mean sglang? Use one"),
    ],
)
def test_a_mistyped_line(typed: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("error: ")
    assert second.startswith("hint: ")
    assert error in f"{first}\n"
    assert hint in second


def test_a_mistyped_word_for_a_draft(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([*FIT, "--draft", "ngrm"]) == 8
    assert "hint: did you mean ngram? Leave --offline out" in capsys.readouterr().err


def test_every_example_is_of_a_command_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(EXAMPLES) <= set(COMMANDS)
    for name, line in EXAMPLES.items():
        assert line.split()[:2] == ["specplan", name]
        assert main([*line.split()[1:3], "--help"] if name != "check-command" else [name, "--help"]) == 0
        if name != "check-command":
            assert main([name]) == 2
            assert f"hint: for example: {line}; " in capsys.readouterr().err
