"""The pages of ``docs/reference`` are what the code says, and the code says all of it."""

import re
from pathlib import Path

import pytest
from write_reference import FAULTS, FOLDER, PAGES, documented_exits, error_rows, exit_codes

from planner.cli.main import COMMANDS
from planner.report.schemas import SCHEMA_OF_COMMAND
from planner.service.exit_codes import EXITS_OF_ALL, MEANING_OF_EXIT
from planner.trial.failures import MEANINGS

ROOT = Path(__file__).resolve().parents[1]
#: A literal code of a trial in our sources, as the parent or as the child says it.
_PARENTS = re.compile(r'code="trial_(\w+)"')
_CHILDS = re.compile(r'(?:_error|fail|Fault|FolderError)\(\s*"(\w+)",|(?:return|code, text =) "([a-z_]+)", ')


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_up_to_date(page: str) -> None:
    assert (FOLDER / page).read_text(encoding="utf-8") == PAGES[page](), "run: make reference"


def test_no_page_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_its_own_exit_codes_and_no_others(name: str) -> None:
    own = exit_codes(name)
    assert 0 in own
    assert not set(own) & set(EXITS_OF_ALL)
    assert documented_exits(name) <= set(MEANING_OF_EXIT)


def test_every_exit_code_is_one_of_a_command() -> None:
    assert set().union(*map(documented_exits, COMMANDS)) == set(MEANING_OF_EXIT)


def test_an_error_code_means_one_thing() -> None:
    codes = [code for code, _, _ in error_rows()]
    assert len(codes) == len(set(codes))
    assert {exit_code for _, exit_code, _ in error_rows()} <= set(MEANING_OF_EXIT)


def test_every_code_of_a_trial_in_the_sources_has_a_meaning() -> None:
    found: set[str] = set()
    for path in (ROOT / "planner").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(_PARENTS.findall(text))
        if path.is_relative_to(ROOT / "planner" / "trial"):
            found |= {first or second for first, second in _CHILDS.findall(text)}
    assert len(found) > 10
    assert found <= set(MEANINGS)


def test_a_fault_has_one_name_and_codes_that_are_known() -> None:
    known = {(code, exit_code) for code, exit_code, _ in error_rows()}
    for cases in FAULTS.values():
        assert len({fault.id for fault in cases}) == len({fault.what for fault in cases}) == len(cases)
        assert {(fault.code, fault.exit_code) for fault in cases if fault.code is not None} <= known


def test_a_schema_is_of_one_command() -> None:
    assert set(SCHEMA_OF_COMMAND) < set(COMMANDS)
    assert len(set(SCHEMA_OF_COMMAND.values())) == len(SCHEMA_OF_COMMAND)
