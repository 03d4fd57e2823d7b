"""Faults of text: what names and configurations may hold that no terminal and no script should get."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from made_repos import TINY_LLAMA

from injected.record import Fault

#: ANSI's "clear the screen", a bell, an override of the writing direction, C1's and C0's controls, an isolate.
HOSTILE = "\x1b[2J\x07\u202egnp\r\x9b31m\x00\u2066"
CLEARED = r"\x1b[2J\x07\u202egnp\r\x9b31m\x00"


@dataclass(frozen=True, kw_only=True)
class TextCase(Fault):
    """A plan of ``target``: ".", a folder with the tiny model's configuration and ``changes`` in it, or a name."""

    target: str = "."
    changes: Mapping[str, Any] = field(default_factory=dict)

    def config(self) -> str:
        return json.dumps({**TINY_LLAMA, **self.changes})


def _name(name: str, what: str, target: str, says: str) -> TextCase:
    return TextCase(id=name, what=f"a model id with {what}", target=target, exit_code=2, code="usage", says=says)


TEXT_CASES = [
    TextCase(
        id="architectures",
        what="terminal controls in the architecture's name",
        changes={"architectures": [f"Llama{HOSTILE}"]},
        exit_code=0,
        code=None,
    ),
    TextCase(
        id="model-type",
        what="terminal controls in the model type",
        changes={"model_type": f"llama{HOSTILE}"},
        exit_code=0,
        code=None,
    ),
    TextCase(
        id="unknown-kind",
        what="terminal controls in the names of an unknown kind of model",
        changes={"model_type": HOSTILE, "architectures": [f"Made{HOSTILE}"]},
        exit_code=5,
        code="config_unsupported",
        says=CLEARED,
    ),
    TextCase(
        id="key",
        what="terminal controls in a key that moves memory",
        changes={f"x_window{HOSTILE}": 3},
        exit_code=5,
        code="config_unsupported",
        says=f"x_window{CLEARED}",
    ),
    TextCase(
        id="dtype",
        what="terminal controls in a storage type",
        changes={"torch_dtype": f"bf{HOSTILE}"},
        exit_code=5,
        code="config",
        says="torch_dtype: is not a floating-point type",
    ),
    _name("quote", "a quote", "org/na'me", "org/na'me: not a Hub repo id"),
    _name("double-quote", "a double quote", 'org/na"me', "not a Hub repo id"),
    _name("newline", "a line break", "org/na\nme", r"'org/na\nme': the model name is empty or has control"),
    _name(
        "escape", "terminal controls", "\x1b[2J/name", r"'\x1b[2J/name': the model name is empty or has control"
    ),
    _name("command", "a command in it", "$(id)/name;id", "not a Hub repo id"),
    _name("dash", "a leading dash", "-org/name", "no such option '-o'"),
    _name("two-dashes", "two leading dashes", "--org/name", "no such option '--org/name'"),
    _name("parent", "a way out", "org/..", "not a Hub repo id"),
]
