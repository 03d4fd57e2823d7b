"""A start script as a shell reads it. What each text means was settled by what bash does with it."""

import pytest

from model_catalog.errors import UsageError
from planner.commands.reading.shell import END, split_script
from planner.commands.reading.split import find_engine, split_text

SERVE = ("vllm", "serve", "org/m")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vllm serve org/m # the model", SERVE),
        ("vllm serve org/m >x.log 2>&1", SERVE),
        ("vllm serve org/m &> x.log", SERVE),
        ("vllm serve org/m <'/dev/null'", SERVE),
        ("vllm serve 'org/m'", SERVE),
        ('vllm serve "or\\\ng/m"', SERVE),
        ("vllm serve org/\\\nm", SERVE),
        ("vllm serve org/m\n\n# later\n", SERVE),
        ("vllm serve org#m", ("vllm", "serve", "org#m")),
        ("vllm serve org/m --x $(nproc --all | head)", (*SERVE, "--x", "$(nproc --all | head)")),
        ("vllm serve org/m ''", (*SERVE, "")),
        ("a; b&&c|d &\ne f", ("a", END, "b", END, "c", END, "d", END, "e", "f")),
        # Pasted without backslashes, or a list of words from a YAML file.
        ("vllm serve org/m\n  --port 80\n  --x", (*SERVE, "--port", "80", "--x")),
        ("vllm\nserve\norg/m\n--port\n80", (*SERVE, "--port", "80")),
        ("vllm serve org/m --x\nwait", (*SERVE, "--x", END, "wait")),
        # The lines of a text that follows a command are no commands.
        ("cat <<EOF >a.yaml\nvllm serve no/m\nEOF\nvllm serve org/m", ("cat", END, *SERVE)),
        ("cat <<-'E F' | tee a\n  b\n\tE F\nvllm serve org/m", ("cat", END, "tee", "a", END, *SERVE)),
        ("cat <<-'END' | tee a\n  b\n\tEND\nvllm serve org/m", ("cat", END, "tee", "a", END, *SERVE)),
        ("cat << A << B; c d\n1\nA\n2\nB\nvllm serve org/m", ("cat", END, "c", "d", END, *SERVE)),
        ("cat <<<word\nvllm serve org/m", ("cat", END, *SERVE)),
        ("vllm serve org/m\necho done", (*SERVE, END, "echo", "done")),
    ],
)
def test_words_are_the_shells(text: str, words: tuple[str, ...]) -> None:
    assert split_script(text) == words


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("vllm serve org/m \\\n  # --a 1 \\\n  --b 2", "a comment"),
        ("vllm serve org/m \\ \n  --b 2", "a backslash"),
        ("vllm serve 'org/m", "a quotation"),
    ],
)
def test_what_a_shell_would_cut_is_refused(text: str, part: str) -> None:
    with pytest.raises(UsageError) as raised:
        split_script(text)
    assert part in raised.value.message


@pytest.mark.parametrize(
    "text",
    [
        "cd /opt && vllm serve org/m; echo ended",
        "docker stop llm || true\ndocker run --gpus all vllm/vllm-openai:v1 --model org/m",
        "bash -lc 'set -e; exec vllm serve org/m'",
        "set -euo pipefail\nexport A=1\nvllm serve org/m --port 80 &\nwait",
    ],
)
def test_the_engine_is_found_among_other_commands(text: str) -> None:
    found = find_engine(split_text(text))
    assert found.engine == "vllm"
    assert "org/m" in found.words
    assert "echo" not in found.words


def test_devices_that_an_earlier_command_exports_count() -> None:
    text = "export CUDA_VISIBLE_DEVICES=2,3\nbash -c 'vllm serve org/m'"
    assert find_engine(split_text(text)).visible == "2,3"
