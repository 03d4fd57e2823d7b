"""Run by the interpreter that has vLLM: what its parser makes of each command. Nothing is settled or started.

Reads a list of argument lists as JSON from standard input and writes ``{"options", "parsed"}`` to the file named
by the first argument; null for a command that the parser refuses.
"""

import json
import sys
from pathlib import Path
from typing import Any

from ask_vllm import PARSER_CLASS_PLACES, PARSER_PLACES, found


def plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | dict | None) else str(value)


def parsed(parser: Any, words: list[str]) -> dict[str, Any] | None:  # noqa: ANN401 - vLLM's own type
    try:
        space = parser.parse_args(words[1:])
    except (Exception, SystemExit):
        return None
    values = {name: plain(value) for name, value in vars(space).items()}
    values["model"] = values.get("model_tag") or values.get("model")
    return values


def main() -> None:
    commands = json.load(sys.stdin)
    kind = found(PARSER_CLASS_PLACES, "FlexibleArgumentParser")
    parser = kind()
    # `vllm serve` is a subcommand: its words are moved and renamed by the outer parser.
    serve = parser.add_subparsers().add_parser("serve")
    found(PARSER_PLACES, "make_arg_parser")(serve)
    options = sorted(name for action in serve._actions for name in action.option_strings)
    answer = {"options": options, "parsed": [parsed(parser, words) for words in commands]}
    Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
