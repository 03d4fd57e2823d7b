"""The nodes of a fleet as they were read, and what was decided about them. Reads nothing."""

from dataclasses import dataclass
from enum import StrEnum

from planner.devices import Device
from planner.planning import Plan
from planner.verdict import Answer


class NodeState(StrEnum):
    """How far a node could be read: wholly; it answered with an error; it stayed silent; it died meanwhile."""

    READ = "read"
    FAILED = "failed"
    UNREAD = "unread"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """One node. ``node_id`` is the cluster's own name for it, ``name`` the one that people know, unlike any other.

    ``offered_gpus``: how many GPUs the cluster gives out there; None where nobody says. ``code`` and ``why`` tell
    a node that is not ``READ``, ``hint`` what to do about it; ``notes`` what is to be known of one that is.
    """

    node_id: str
    name: str
    address: str
    state: NodeState
    devices: tuple[Device, ...] = ()
    offered_gpus: int | None = None
    offered_cpus: int | None = None
    specplan_version: str | None = None
    code: str | None = None
    why: str | None = None
    hint: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """What one node can hold. ``copies``: whole copies of the plan, each on devices of its own.

    ``devices``: the kind of device that was judged, all of that kind. ``least_free_bytes``: of them.
    ``headroom_bytes``: of the copy with the least room, or of what comes closest where none fits; None where a
    reading is missing or there is nothing to judge. ``binding``: what binds it, in words.
    """

    node: NodeReading
    answer: Answer
    copies: int
    devices: tuple[Device, ...]
    devices_per_copy: int | None
    headroom_bytes: int | None
    binding: str

    @property
    def least_free_bytes(self) -> int | None:
        """None where one of them was not read, or there is none."""
        free = [device.free_bytes for device in self.devices]
        known = [size for size in free if size is not None]
        return min(known) if known and len(known) == len(free) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One copy over several nodes, a pipeline stage on each, in this order."""

    nodes: tuple[NodeReading, ...]
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """The whole fleet: every node's verdict, copies that span nodes, and how many copies there are in all."""

    nodes: tuple[NodeVerdict, ...]
    spans: tuple[Span, ...] = ()

    @property
    def copies(self) -> int:
        """How many copies of the plan the fleet holds at once, for certain."""
        return sum(verdict.copies for verdict in self.nodes) + len(self.spans)

    @property
    def answer(self) -> Answer:
        """Fits where one copy does; no copy is a "no" only where every node that is there could be judged.

        A lost node is gone, and holds nothing. One that is unread might.
        """
        if self.copies:
            return Answer.FITS
        answers = {verdict.answer for verdict in self.nodes if verdict.node.state is not NodeState.LOST}
        for answer in (Answer.TIGHT, Answer.UNKNOWN):
            if answer in answers:
                return answer
        return Answer.DOES_NOT_FIT

    def in_state(self, state: NodeState) -> tuple[NodeReading, ...]:
        """The nodes of that state, in order."""
        return tuple(verdict.node for verdict in self.nodes if verdict.node.state is state)
