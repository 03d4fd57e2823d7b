"""A text as a shell reads it, as far as a start script of an engine needs: words, comments, where a command ends.

Nothing is run or expanded: variables and ``$(...)`` stay as they stand.
"""

from collections.abc import Iterator
from typing import Final

from model_catalog.errors import UsageError

#: Stands between two commands.
END: Final = ";"
_BLANK: Final = " \t"
#: Lines of one word that are no value of an option.
_KEYWORDS: Final = frozenset({"wait", "fi", "done", "exit", "esac", "}", ")", "EOF"})


def split_script(text: str) -> tuple[str, ...]:
    """The words of a text, with ``END`` between commands; redirections and comments are left out.

    Lines that were pasted without their backslashes belong together: one that begins with an option goes with the
    line before it, and so does a word on a line of its own that can be a value.

    Raises:
        UsageError: a quotation that does not end, or a line that is meant to be continued and is not.
    """
    scanner = _Scanner(text)
    words: list[str] = []
    before: list[str] = []
    for line in scanner.lines():
        if words and not _continues(before, line):
            words += [] if words[-1] == END else [END]
        elif line[0].startswith("-") and scanner.cut_before:
            raise UsageError(
                "a comment between continued lines ends it: a shell does not pass the options after the comment",
                subject="the command",
                hint="take the comment out, or put it above the command",
            )
        words += line
        before = line
    return tuple(words)


def _continues(before: list[str], line: list[str]) -> bool:
    if line[0].startswith("-"):
        return True
    alone = len(line) == 1 and line[0] not in _KEYWORDS
    return alone and (len(before) == 1 or before[-1].startswith("-")) and before[-1] != END


class _Scanner:
    """Walks the text once. ``cut_before``: the line before was ended by a comment though it was continued."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._awaited: list[tuple[str, bool]] = []
        self.cut_before = False

    def lines(self) -> Iterator[list[str]]:
        """The words of each line that has any, lines joined by backslashes as one."""
        cut = False
        while self._place < len(self._text):
            line, ended = self._line()
            if line:
                self.cut_before, cut = cut, ended
                yield line

    def _line(self) -> tuple[list[str], bool]:
        words: list[str] = []
        word: list[str] | None = None
        dropped, continued = False, False

        def finish() -> None:
            nonlocal word, dropped
            if word is not None and not dropped:
                words.append("".join(word))
            dropped = dropped and word is None
            word = None

        while self._place < len(self._text):
            char = self._take()
            if char == "\n":
                self._skip_texts()
                break
            if char in _BLANK:
                finish()
            elif char == "#" and word is None:
                self._skip_line()
                finish()
                return words, continued
            elif char == "\\":
                if self._at("\n"):
                    self._take()
                    continued = True
                    continue
                self._check_backslash()
                word = [*(word or []), self._take() if self._place < len(self._text) else ""]
            elif char in "'\"":
                word = [*(word or []), self._quoted(char)]
            elif char == "$" and self._at("("):
                word = [*(word or []), char, self._substitution()]
            elif char == "<" and self._at("<") and not self._text.startswith("<<", self._place):
                finish()
                self._await_text()
            elif char in "<>" or (char == "&" and self._at(">")):
                if word is not None and not "".join(word).isdigit():
                    finish()
                word, dropped = None, True
                while self._place < len(self._text) and self._text[self._place] in "<>&":
                    self._take()
            elif char in ";|&":
                finish()
                if words and words[-1] != END:
                    words.append(END)
            else:
                word = [*(word or []), char]
        finish()
        return words, False

    def _take(self) -> str:
        self._place += 1
        return self._text[self._place - 1]

    def _at(self, char: str) -> bool:
        return self._text.startswith(char, self._place)

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._place)
        self._place = len(self._text) if end < 0 else end + 1

    def _await_text(self) -> None:
        """``<<WORD``: the text begins on the next line; with ``<<-`` its last line may be indented by tabs."""
        self._take()
        indented = self._at("-")
        if indented:
            self._take()
        while self._at(" ") or self._at("\t"):
            self._take()
        word = ""
        while self._place < len(self._text) and self._text[self._place] not in " \t\n;|&<>":
            char = self._take()
            word += self._quoted(char) if char in "'\"" else "" if char == "\\" else char
        self._awaited.append((word, indented))

    def _skip_texts(self) -> None:
        """Pass over the texts that the line before asked for: they are no commands."""
        while self._awaited:
            word, indented = self._awaited.pop(0)
            while self._place < len(self._text):
                end = self._text.find("\n", self._place)
                end = len(self._text) if end < 0 else end
                line, self._place = self._text[self._place : end], end + 1
                if (line.lstrip("\t") if indented else line) == word:
                    break

    def _check_backslash(self) -> None:
        """A backslash before blanks at a line's end is meant to continue it, and does not."""
        rest = self._text[self._place : self._place + 200].lstrip(_BLANK)
        if self._text[self._place : self._place + 1] in {" ", "\t"} and rest.startswith("\n"):
            raise UsageError(
                "a backslash is followed by blanks at the end of its line: a shell does not continue the line",
                subject="the command",
                hint="end the line with the backslash",
            )

    def _quoted(self, quote: str) -> str:
        taken: list[str] = []
        while self._place < len(self._text):
            char = self._take()
            if char == quote:
                return "".join(taken)
            if char == "\\" and quote == '"' and self._text[self._place : self._place + 1] in {*'"\\$`', "\n"}:
                char = self._take()
                if char == "\n":
                    continue
            taken.append(char)
        raise UsageError(
            "a quotation does not end", subject="the command", hint="look at its quotes and backslashes"
        )

    def _substitution(self) -> str:
        """``(...)`` to the bracket that closes it; where there is none, what is left."""
        begun, depth = self._place, 0
        while self._place < len(self._text):
            char = self._take()
            depth += {"(": 1, ")": -1}.get(char, 0)
            if depth == 0:
                break
        return self._text[begun : self._place]
