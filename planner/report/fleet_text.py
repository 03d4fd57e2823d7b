"""A fleet in words: the answer, a table of equal nodes, what binds the others. Names are made safe."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from planner.devices import DeviceSource
from planner.fleet.planning import Recipe
from planner.fleet.records import FleetPlan, NodeReading, NodeState, NodeVerdict
from planner.report.plain import Style, paint, safe_line
from planner.report.tables import table
from planner.report.words import count, need_bytes, room, wrapped
from planner.verdict import Answer

_WORDS: Final[dict[Answer, tuple[str, Style]]] = {
    Answer.FITS: ("FITS", "good"),
    Answer.TIGHT: ("TIGHT", "unsure"),
    Answer.DOES_NOT_FIT: ("DOES NOT FIT", "bad"),
    Answer.UNKNOWN: ("CANNOT TELL", "unsure"),
}
_NODE_WORDS: Final = {
    Answer.FITS: "fits",
    Answer.TIGHT: "tight",
    Answer.DOES_NOT_FIT: "does not fit",
    Answer.UNKNOWN: "cannot tell",
}
_LONGEST_NAME: Final = 22
_RANK: Final = re.compile(r" on rank \d+")
#: Nodes named for one reason; of more, a number.
_MOST_NAMES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Nodes in one row. ``stage``: each is a stage of a copy that spans nodes."""

    nodes: tuple[NodeVerdict, ...]
    stage: bool

    @property
    def first(self) -> NodeVerdict:
        return self.nodes[0]


def fleet_line(fleet: FleetPlan, recipes: Mapping[str, Recipe], *, with_draft: bool) -> str:
    """``FITS: 12 copies of the plan on 3 of 4 nodes``: the whole answer in a line."""
    word, style = _WORDS[fleet.answer]
    line = f"{paint(word, style)}: {_sentence(fleet, recipes)}"
    return line if with_draft else f"{paint('NO DRAFT', 'bad')}: none will do. The target alone: {line}"


def fleet_text(fleet: FleetPlan, recipes: Mapping[str, Recipe], cluster: str, *, with_draft: bool) -> str:
    """The fleet, its answer, its nodes, and why some hold nothing."""
    head = f"Fleet           {safe_line(cluster)}: {_counted(fleet)}"
    blocks = ["\n".join(wrapped(head, indent=16))]
    blocks.append("\n".join(wrapped(fleet_line(fleet, recipes, with_draft=with_draft), indent=2)))
    groups = _groups(fleet)
    rows = [_row(group) for group in groups]
    blocks.append(table(rows, ["Nodes", "Devices", "Free", "Copies", "Verdict"], "llrrl"))
    blocks += [_spans(fleet), _reasons(groups), _notes(fleet.nodes)]
    return "\n\n".join(block for block in blocks if block)


def node_line(node: NodeReading, answered: int, of: int) -> str:
    """A node that answered, for people who watch."""
    return f"{safe_line(node.name)}: {_seen(node)} ({answered} of {count(of, 'node')})"


def _seen(node: NodeReading) -> str:
    if node.state is not NodeState.READ:
        return f"{node.state.value}: {safe_line(node.why or '')}"
    free = [device.free_bytes for device in node.devices if device.free_bytes is not None]
    if not node.devices:
        return "no GPU"
    return (
        f"{_devices(node)}, {room(min(free))} free at least" if free else f"{_devices(node)}, free memory not read"
    )


def _sentence(fleet: FleetPlan, recipes: Mapping[str, Recipe]) -> str:
    if not fleet.copies:
        unread = [node for verdict in fleet.nodes if (node := verdict.node).state in _OPEN]
        more = f"; {count(len(unread), 'node')} could not be judged" if unread else ""
        return f"no node holds a copy of the plan for certain{more}"
    holding = sum(verdict.copies > 0 for verdict in fleet.nodes) + sum(len(span.nodes) for span in fleet.spans)
    degrees = "; ".join(
        f"{recipe.tp * recipe.pp} × {safe_line(kind)} each"
        for kind, recipe in recipes.items()
        if any(
            verdict.copies and any(device.name == kind for device in verdict.devices) for verdict in fleet.nodes
        )
        or any(span.plan.ranks[0].rank.device.name == kind for span in fleet.spans)
    )
    copies = "1 copy" if fleet.copies == 1 else f"{fleet.copies:,} copies"
    return f"{copies} of the plan on {holding:,} of {count(len(fleet.nodes), 'node')} ({degrees})"


_OPEN: Final = frozenset({NodeState.UNREAD, NodeState.FAILED})


def _counted(fleet: FleetPlan) -> str:
    gpus = [device for verdict in fleet.nodes for device in verdict.node.devices]
    parts = [count(len(fleet.nodes), "node")]
    if any(device.source is not DeviceSource.HOST for device in gpus):
        parts.append(count(len(gpus), "GPU"))
    for state in (NodeState.LOST, NodeState.UNREAD, NodeState.FAILED):
        found = fleet.in_state(state)
        if found:
            names = ", ".join(safe_line(node.name) for node in found[:_MOST_NAMES])
            more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
            parts.append(f"{state.value}: {names}{more}")
    return "; ".join(parts)


def _groups(fleet: FleetPlan) -> list[_Group]:
    """Nodes that the table shows as one: alike in their devices, their answer and what keeps them from more."""
    stages = {node.node_id for span in fleet.spans for node in span.nodes}
    groups: dict[tuple[object, ...], list[NodeVerdict]] = {}
    for verdict in fleet.nodes:
        part = verdict.node.node_id in stages
        why = "" if part or verdict.answer is Answer.FITS else _binding(verdict)
        alike = (verdict.node.state, _devices(verdict.node), verdict.answer, verdict.copies, part, why)
        groups.setdefault(alike, []).append(verdict)
    found = [_Group(nodes=tuple(nodes), stage=bool(alike[4])) for alike, nodes in groups.items()]
    return sorted(found, key=lambda group: (-group.first.copies, not group.stage))


def _binding(verdict: NodeVerdict) -> str:
    """What binds, without the position of a device that is another one on every node."""
    return _RANK.sub("", safe_line(verdict.binding))


def _named(group: _Group) -> str:
    name = safe_line(group.first.node.name)
    more = f" +{len(group.nodes) - 1:,}" if len(group.nodes) > 1 else ""
    longest = _LONGEST_NAME - len(more)
    return (name if len(name) <= longest else f"{name[: longest - 1]}…") + more


def _row(group: _Group) -> tuple[str, ...]:
    first = group.first
    if first.node.state is not NodeState.READ:
        return _named(group), "", "", "", first.node.state.value
    free = [size for verdict in group.nodes if (size := verdict.least_free_bytes) is not None]
    shown = "" if not first.devices else "not read"
    if free:
        low, high = room(min(free)), room(max(free))
        shown = low if low == high else f"{low.removesuffix(' GiB')} – {high}"
    copies = f"{first.copies:,}" if first.devices else ""
    word = "a stage" if group.stage else _NODE_WORDS[first.answer] if first.devices else "-"
    return _named(group), _devices(first.node), shown, copies, word


def _devices(node: NodeReading) -> str:
    kinds: dict[str, int] = {}
    for device in node.devices:
        kinds[device.name] = kinds.get(device.name, 0) + 1
    listed = (
        f"{number} × {safe_line(name).removeprefix('NVIDIA ')}" if name != "host memory" else name
        for name, number in kinds.items()
    )
    return ", ".join(listed) or "no GPU"


def _spans(fleet: FleetPlan) -> str:
    if not fleet.spans:
        return ""
    lines = [paint("Copies over several nodes, a pipeline stage on each:", "heading")]
    for span in fleet.spans[:_MOST_NAMES]:
        names = " + ".join(safe_line(node.name) for node in span.nodes)
        lines += wrapped(f"  {names}", indent=4)
    if len(fleet.spans) > _MOST_NAMES:
        lines.append(f"  and {len(fleet.spans) - _MOST_NAMES:,} more")
    return "\n".join(lines)


def _reasons(groups: Sequence[_Group]) -> str:
    lines = []
    for group in groups:
        first = group.first
        nothing = first.node.state is NodeState.READ and not first.devices
        if first.answer is Answer.FITS or group.stage or nothing:
            continue
        short = _shortage(group)
        state = "" if first.node.state is NodeState.READ else f"{first.node.state.value}: "
        hint = "" if first.node.hint is None else f" ({safe_line(first.node.hint)})"
        text = f"  {_named(group)}: {state}{_binding(first)}{short}{hint}"
        lines += wrapped(text, indent=4)
    return "\n".join([paint("What binds:", "heading"), *lines]) if lines else ""


def _shortage(group: _Group) -> str:
    missing = [-room for verdict in group.nodes if (room := verdict.headroom_bytes) is not None and room < 0]
    if not missing:
        return ""
    low, high = need_bytes(min(missing)), need_bytes(max(missing))
    return f"; {low} short" if low == high else f"; {low.removesuffix(' GiB')} – {high} short"


def _notes(verdicts: Iterable[NodeVerdict]) -> str:
    by_note: dict[str, list[str]] = {}
    for verdict in verdicts:
        for note in verdict.node.notes if verdict.node.devices else ():
            by_note.setdefault(note, []).append(verdict.node.name)
    lines = []
    for note, names in by_note.items():
        more = f" +{len(names) - 1:,}" if len(names) > 1 else ""
        lines += wrapped(f"Note: {safe_line(names[0])}{more}: {safe_line(note)}", indent=2)
    return "\n".join(lines)
