"""Lists of module names in quantisation configs: which modules of a model do they mean?

Owns the four spellings in use: a path or a run of its segments (``lm_head``, ``mlp.gate``,
``model.layers.0.self_attn``), a shell pattern (``model.layers.0*``), a regular expression (``re:.*mlp.gate$``),
and a class name (``Linear``). The lists come from untrusted files: their number and the cost of their
expressions are bounded.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from typing import Final

from model_catalog.errors import UnsupportedConfigError

MAX_PATTERNS: Final = 100_000
_MAX_EXPRESSION_CHARACTERS: Final = 300
#: What bounds backtracking: expressions in one list, and in one expression repetitions and groups.
_MAX_EXPRESSIONS: Final = 256
_MAX_REPETITIONS: Final = 4
_MAX_GROUPS: Final = 3
_MAX_STARS: Final = 8
#: What checkpoints put before ``layers.N``; lists spell any of them.
_PREFIXES: Final = ("model.", "", "model.language_model.", "language_model.model.", "language_model.", "backbone.")
#: Class names stand for every matrix that the method converts at all.
_CLASSES: Final = frozenset({"Linear", "FusedMoE", "Conv1d", "MoEGate"})
_QUANTIFIED_GROUP: Final = re.compile(r"\)[*+?{]")
_REPETITION: Final = re.compile(r"[*+}]|(?<!\()\?")
_CONTAINER: Final = re.compile(r"^(?:.*?\.)??(?=(?:mtp\.)?(?:layers|h|blocks)\.\d)")


class ModulePatterns:
    """A list of patterns, asked whether it means a module."""

    def __init__(self, patterns: Iterable[str], *, subject: str, key_path: str) -> None:
        listed = tuple(patterns)
        if len(listed) > MAX_PATTERNS:
            raise _unsupported(f"lists {len(listed)} modules", subject, key_path)
        self.names_every_linear = any(pattern in _CLASSES for pattern in listed)
        plain = [pattern for pattern in listed if pattern not in _CLASSES]
        self._runs = frozenset(
            _from_container(pattern) for pattern in plain if not pattern.startswith("re:") and "*" not in pattern
        )
        expressions = [pattern[3:] for pattern in plain if pattern.startswith("re:")]
        if len(expressions) > _MAX_EXPRESSIONS:
            raise _unsupported(f"lists {len(expressions)} module expressions", subject, key_path)
        shells = [pattern for pattern in plain if not pattern.startswith("re:") and "*" in pattern]
        self._expressions = tuple(_compiled(text, subject, key_path) for text in dict.fromkeys(expressions))
        self._shells = tuple(_compiled_shell(text, subject, key_path) for text in dict.fromkeys(shells))

    def mean(self, paths: Iterable[str]) -> bool:
        """Whether the list means a module known under these paths (``layers.3.self_attn.q_proj``, ``lm_head``)."""
        return any(self._means(path) for path in paths)

    def _means(self, path: str) -> bool:
        if any(run in self._runs for run in _segment_runs(path)):
            return True
        return any(
            expression.match(prefix + path)
            for expression in (*self._expressions, *self._shells)
            for prefix in _PREFIXES
        )


def _segment_runs(path: str) -> Iterator[str]:
    segments = path.split(".")
    # ``mtp.layers.0`` is not the decoder's ``layers.0``.
    starts = [number for number in range(len(segments)) if segments[max(number - 1, 0)] != "mtp" or number == 0]
    for start in starts:
        for end in range(start + 1, len(segments) + 1):
            yield ".".join(segments[start:end])


def _from_container(pattern: str) -> str:
    """``model.language_model.layers.0.mlp`` as ``layers.0.mlp``; without layers, the last part tells."""
    trimmed = pattern.strip(".")
    return _CONTAINER.sub("", trimmed, count=1).removeprefix("model.").removeprefix("language_model.")


def _compiled(text: str, subject: str, key_path: str) -> re.Pattern[str]:
    too_costly = (
        len(text) > _MAX_EXPRESSION_CHARACTERS
        or len(_REPETITION.findall(text)) > _MAX_REPETITIONS
        or text.count("(") > _MAX_GROUPS
        or _QUANTIFIED_GROUP.search(text) is not None
    )
    if too_costly:
        raise _unsupported(
            f"has a module expression that is too costly to apply: {ascii(text)[:80]}", subject, key_path
        )
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as cause:
        raise _unsupported(
            f"has a module expression that cannot be read: {ascii(text)[:80]}", subject, key_path
        ) from cause


def _compiled_shell(text: str, subject: str, key_path: str) -> re.Pattern[str]:
    if len(text) > _MAX_EXPRESSION_CHARACTERS or text.count("*") > _MAX_STARS:
        raise _unsupported(
            f"has a module pattern that is too costly to apply: {ascii(text)[:80]}", subject, key_path
        )
    return re.compile(fnmatch.translate(text))


def _unsupported(message: str, subject: str, key_path: str) -> UnsupportedConfigError:
    return UnsupportedConfigError(
        f"config.json: {key_path}: {message}",
        subject=subject,
        hint="plan the unquantised model of the same name, or report this config",
        key_path=key_path,
    )
