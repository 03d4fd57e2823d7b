"""What is left of a command once its planned options are taken: moves memory, or hardly does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.commands.reading.options import Given
from planner.commands.reading.records import Effect, Unplanned
from planner.verdict import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """``ignored``: names alone, for values may be secrets."""

    unplanned: tuple[Unplanned, ...] = ()
    ignored: tuple[str, ...] = ()
    remarks: tuple[Reason, ...] = ()


def sort_rest(
    rest: Sequence[Given], *, moving: Mapping[str, Effect], neutral: Mapping[str, frozenset[str]]
) -> Sorted:
    """``moving``: what each such option does. ``neutral``: its values that say no more than the default.

    A ``--no-`` form of a switch says the default too, unless it is listed by that very name.
    """
    unplanned: dict[str, Effect] = {}
    ignored: list[str] = []
    for given in rest:
        named = given.typed if given.typed in moving else given.option
        effect = moving.get(named)
        unset = (given.off and named != given.typed) or given.value.strip() in neutral.get(named, frozenset())
        if effect is None or unset:
            ignored.append(given.option)
        else:
            unplanned[named] = effect
    return Sorted(
        unplanned=tuple(Unplanned(option=option, effect=effect) for option, effect in unplanned.items()),
        ignored=tuple(dict.fromkeys(ignored)),
    )
