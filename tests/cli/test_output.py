"""Where words and documents go: colour, encodings, files that are whole or not there."""

import io
import json
import stat
import sys
from pathlib import Path

import pytest

from model_catalog.errors import UsageError
from planner.cli.output import Output, write_document
from planner.report.plain import paint, redact, safe_block, safe_line, without_color


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, output: Output, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stdout", stream)
    output.answer(paint("FITS", "good"))
    return stream.getvalue()


def test_colour_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" in printed(monkeypatch, Output(), Terminal())
    assert printed(monkeypatch, Output(), io.StringIO()) == "FITS\n"
    assert "\x1b[" in printed(monkeypatch, Output(color="always"), io.StringIO())
    assert printed(monkeypatch, Output(color="never"), Terminal()) == "FITS\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_refused_by_the_environment(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert printed(monkeypatch, Output(), Terminal()) == "FITS\n"


def test_a_terminal_without_unicode_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    Output().answer("2 × 1.00 – 2.00 GiB")
    sys.stdout.flush()
    assert raw.getvalue() == b"2 x 1.00 - 2.00 GiB\n"


def test_stdout_belongs_to_the_document_alone(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(json_target="-")
    output.answer("in words")
    output.note("n", "beside")
    output.document({"schema": "x"})
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema": "x"}
    assert err == "note: beside\n"


def test_quiet_drops_notes_but_keeps_them_for_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(quiet=True)
    output.note("n", "beside")
    output.warn("w", "careful")
    assert capsys.readouterr().err == "warning: careful\n"
    assert [remark.code for remark in output.remarks] == ["n", "w"]


def test_a_document_replaces_a_file_as_a_whole(tmp_path: Path) -> None:
    place = tmp_path / "report.json"
    place.write_text("old", encoding="utf-8")
    with pytest.raises(TypeError):
        write_document({"a": object()}, str(place))
    assert place.read_text(encoding="utf-8") == "old"
    write_document({"a": 1}, str(place))
    assert json.loads(place.read_text(encoding="utf-8")) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert stat.S_IMODE(place.stat().st_mode) & 0o600 == 0o600


def test_a_document_follows_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old", encoding="utf-8")
    link.symlink_to(real)
    write_document({"a": 1}, str(link))
    assert link.is_symlink()
    assert json.loads(real.read_text(encoding="utf-8")) == {"a": 1}


def test_a_folder_is_no_place_for_a_document(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_document({}, str(tmp_path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain – ×", "plain – ×"),
        ("a\nb", r"a\nb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\u202e\u200b", r"\u202e\u200b"),
        ("token hf_abcdefghij0123456789 end", "token hf_*** end"),
        ("hf-internal-testing/tiny", "hf-internal-testing/tiny"),
        ("hf_hub_download", "hf_hub_download"),
    ],
)
def test_foreign_text_is_made_safe(text: str, expected: str) -> None:
    assert safe_line(text) == expected


def test_only_our_colour_survives() -> None:
    text = paint("a", "bad") + "\x1b[2J\nb"
    assert safe_block(text, color=True) == paint("a", "bad") + "\\x1b[2J\nb"
    assert safe_block(text) == "a\\x1b[2J\nb"
    assert without_color(paint("a", "heading")) == "a"
    assert redact(paint("hf_abcdefghij", "bad")) == paint("hf_***", "bad")
