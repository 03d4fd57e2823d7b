"""Which pictures a `fit` has, and why others are missing. Each is drawn by its own module."""

from planner.pictures.map_picture import map_picture
from planner.pictures.memory_picture import memory_picture
from planner.pictures.page import Picture, drawing_style, short_name
from planner.pictures.speedup_picture import measured_speedups, predicted_speedups, speedup_picture
from planner.pictures.tokens_picture import tokens_picture
from planner.report.findings import Findings


def draw(findings: Findings) -> tuple[Picture, ...]:
    """The pictures of what was found: memory and the map of context and batch always, the draft's where there are.

    ``findings`` alone are enough: its plans know engine, devices and workload. The map makes some hundred plans.
    """
    with drawing_style():
        found = (
            memory_picture(findings),
            map_picture(findings),
            speedup_picture(findings),
            tokens_picture(findings),
        )
    return tuple(picture for picture in found if picture is not None)


def left_out(findings: Findings) -> tuple[str, ...]:
    """Which pictures are missing, and why; empty where all four are there."""
    shown = findings.shown
    if shown is None:
        why = "no draft was asked for" if findings.worth is None and not findings.drafts else "no draft will do"
        return (f"no pictures of speed and of KV tokens: {why}",)
    if shown.set_up is None:
        return (f"no pictures of the pair's memory: {short_name(shown.name)} cannot be planned",)
    missing = []
    if not (predicted_speedups(shown) or measured_speedups(findings)):
        missing.append("no picture of speed: no prediction and no trial has a figure for this load")
    if shown.cost is None or shown.cost.kv_tokens_alone is None:
        missing.append("no picture of KV tokens: this engine has no pool of its own, or no room for one")
    return tuple(missing)
