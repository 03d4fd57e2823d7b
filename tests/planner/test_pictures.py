"""Pictures hold the plan's own figures, in its words; their files are whole, repeatable and safe in a page."""

import io
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from linear_engine import GIB, LinearEngine, made_device, made_model
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from pair_plans import known
from PIL import Image

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from planner.cli.picture_options import PLOT_ENDINGS
from planner.declared_gpus import parse_gpu_option
from planner.devices import Device
from planner.engines.base import Draft, EngineProfile, Serving
from planner.engines.registry import engine_profile
from planner.memory.breakdown import Group, Owner
from planner.pictures import ENDINGS, Picture, draw, left_out, svg_text, write_pictures
from planner.pictures.memory_bars import Bar, memory_bars
from planner.pictures.page import TERM_COLORS, short_name
from planner.pictures.speedup_picture import measured_speedups
from planner.report.findings import Findings, find
from planner.report.words import GROUP_NAMES
from planner.speculation.prediction import Demand
from planner.speculation.selection import Offer
from planner.speculation.speedup import predict
from planner.trial.result import PairTrial
from planner.workload import Workload

HOSTILE = "made/<script>alert('$x$')</script>&\u202e" + "long" * 40


def of_pair(
    devices: tuple[Device, ...],
    engine: EngineProfile,
    *,
    workload: Workload | None = None,
    predicted: bool = True,
    names: tuple[str, str] | None = None,
    trials: Mapping[str, PairTrial] | None = None,
) -> Findings:
    """Qwen3 8B with Qwen3 0.6B, 3 tokens a step."""
    work = workload or Workload(batch=4)
    target, model = known("Qwen/Qwen3-8B"), known("Qwen/Qwen3-0.6B")
    if names is not None:
        target = replace(target, snapshot=replace(target.snapshot, repo_id=names[0]))
        model = replace(model, snapshot=replace(model.snapshot, repo_id=names[1]))
    draft = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=3, model=model)
    prediction = predict(target, draft, devices[0], work, Demand(batch=work.batch)) if predicted else None
    offer = Offer(draft=draft, prediction=prediction)
    alone = Serving(target=target, draft=None, workload=work)
    return find(alone, (offer,), devices, engine, trials=trials or {})


def l40s() -> tuple[Device, ...]:
    return tuple(parse_gpu_option("l40s"))


@pytest.fixture(scope="module")
def pair() -> Findings:
    return of_pair(l40s(), engine_profile("vllm"))


@pytest.fixture(scope="module")
def drawn(pair: Findings) -> dict[str, Picture]:
    return {picture.name: picture for picture in draw(pair)}


def by_hand(
    llama_8b: Mapping[str, Any], llama_1b: Mapping[str, Any], workload: Workload | None = None
) -> Findings:
    """Weights 16 GiB, cache 8, draft 4, up to 2 more; 1 GiB outside a budget of 0.9 x 40 GiB."""
    alone = Serving(target=made_model("target", llama_8b), draft=None, workload=workload or Workload())
    draft = Draft(method=DraftMethod.DRAFT_MODEL, num_speculative_tokens=5, model=made_model("draft", llama_1b))
    engine = LinearEngine(target_gib=16, draft_gib=4, unsure_gib=2)
    return find(alone, (Offer(draft=draft),), (made_device(40),), engine)


def bars(findings: Findings, rank: int = 0) -> list[Bar]:
    plan = findings.told.plan
    return list(memory_bars(plan, plan.ranks[rank]))


def in_gib(bar: Bar) -> list[tuple[Group, bool, bool, float, float]]:
    return [(s.group, s.of_draft, s.certain, s.start_bytes / GIB, s.size_bytes / GIB) for s in bar.segments]


def words(picture: Picture) -> str:
    """All text of the picture, as a reader or a search finds it."""
    root = ElementTree.fromstring(svg_text(picture))  # noqa: S314 - our own
    return " ".join("".join(element.itertext()) for element in root.iter() if element.tag.endswith("text"))


def test_bars_worked_out_by_hand(llama_8b: Mapping[str, Any], llama_1b: Mapping[str, Any]) -> None:
    inside, outside = bars(by_hand(llama_8b, llama_1b))
    assert in_gib(inside) == [
        (Group.TARGET_WEIGHTS, False, True, 0, 16),
        (Group.KV_CACHE, False, True, 16, 8),
        (Group.DRAFT_WEIGHTS, True, True, 24, 4),
        (Group.TEMPORARY_BUFFERS, False, False, 28, 2),
    ]
    assert (inside.edge, inside.edge_bytes) == ("Engine's budget", 36 * GIB)
    assert in_gib(outside) == [(Group.RUNTIME_OVERHEAD, False, True, 36, 1)]
    assert (outside.edge, outside.edge_bytes, outside.room_bytes) == ("Free on the device", 40 * GIB, 4 * GIB)


def test_a_memory_limit_is_the_edge_that_it_is(llama_8b: Mapping[str, Any], llama_1b: Mapping[str, Any]) -> None:
    outside = bars(by_hand(llama_8b, llama_1b, Workload(memory_limit_bytes=38 * GIB)))[1]
    assert (outside.edge, outside.edge_bytes) == ("Memory limit", 38 * GIB)
    roomy = bars(by_hand(llama_8b, llama_1b, Workload(memory_limit_bytes=50 * GIB)))[1]
    assert (roomy.edge, roomy.edge_bytes) == ("Free on the device", 40 * GIB)


def test_a_pinned_cache_is_a_room_of_its_own(llama_8b: Mapping[str, Any], llama_1b: Mapping[str, Any]) -> None:
    cache, rest = bars(by_hand(llama_8b, llama_1b, Workload(kv_cache_memory_bytes=10 * GIB)))
    assert in_gib(cache) == [(Group.KV_CACHE, False, True, 0, 8)]
    assert (cache.edge, cache.edge_bytes) == ("Pinned KV cache", 10 * GIB)
    # Beside the pool of 10 GiB: 16 GiB of weights, 1 outside the budget, 4 of the draft, up to 2 more.
    assert (rest.start_bytes, rest.need.low_bytes, rest.need.high_bytes) == (10 * GIB, 21 * GIB, 23 * GIB)
    assert rest.room_bytes == 30 * GIB


def test_a_bar_ends_as_far_from_its_room_as_the_verdict_says(pair: Findings) -> None:
    """What the text tells as left over, inside the budget and beside it, is the gap in the picture."""
    verdict = pair.told.plan.ranks[0].verdict
    inside, outside = bars(pair)
    assert inside.room_bytes is not None
    assert outside.room_bytes is not None
    assert inside.room_bytes - inside.need.high_bytes == verdict.headroom_bytes
    assert outside.room_bytes - outside.need.high_bytes == verdict.beside_bytes


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_every_line_is_drawn_once_in_the_colour_of_its_term(engine: str) -> None:
    """Rectangles as drawn, against the plan's own lines summed here."""
    findings = of_pair(l40s(), engine_profile(engine), predicted=False)
    memory = draw(findings)[0]
    (rank,) = findings.told.plan.ranks
    drawn: dict[str, float] = {}
    pieces = [patch for patch in memory.figure.axes[0].patches if isinstance(patch, Rectangle)]
    for patch in pieces:
        color = mpl.colors.to_hex(patch.get_facecolor())
        drawn[color] = drawn.get(color, 0.0) + patch.get_width()
    for group, color in TERM_COLORS.items():
        low = sum(item.low_bytes for item in rank.breakdown.items if item.group is group)
        assert drawn.get(color, 0.0) == pytest.approx(low / GIB), group
    high = sum(item.high_bytes for item in rank.breakdown.items)
    assert sum(drawn.values()) == pytest.approx(high / GIB)
    hatched = sum(piece.get_width() for piece in pieces if "\\" in (piece.get_hatch() or ""))
    of_draft = sum(item.high_bytes for item in rank.breakdown.items if item.owner is Owner.DRAFT)
    assert hatched == pytest.approx(of_draft / GIB)


def test_memory_is_told_in_the_words_of_the_table(drawn: dict[str, Picture]) -> None:
    told = words(drawn["memory"])
    assert all(name in told for name in GROUP_NAMES.values())
    assert "Engine's budget" in told
    assert "Memory (GiB)" in told
    assert "FITS: " in told
    # 399 blocks of the headers' tensors: 8,190,735,360 parameters of 2 bytes are 15.26 GiB.
    assert "Target weights 15.26 GiB" in drawn["memory"].alt


def test_without_a_reading_no_room_is_drawn() -> None:
    device = replace(l40s()[0], free_bytes=None, engine_total_bytes=None, total_bytes=None)
    findings = of_pair((device,), engine_profile("vllm"), predicted=False)
    memory, fit_map = draw(findings)
    assert [bar.edge_bytes for bar in bars(findings)] == [None]
    assert not list(memory.figure.axes[0].lines)
    told = words(memory)
    assert "Free memory is unknown on NVIDIA L40S" in told
    assert "Free on the device" not in told
    assert "cannot tell" in words(fit_map)
    assert "cannot be told to fit" in fit_map.alt
    assert "tight" not in words(fit_map)


def region(picture: Picture, panel: int, color: str) -> list[tuple[float, float]]:
    """Corners of a filled region, in tokens and sequences."""
    for shape in picture.figure.axes[panel].collections:
        if isinstance(shape, FillBetweenPolyCollection) and mpl.colors.to_hex(shape.get_facecolor()[0]) == color:
            corners: Any = shape.get_paths()[0].vertices
            return [(float(x), float(y)) for x, y in corners]
    raise AssertionError(f"no region of {color}")


def test_the_map_is_filled_up_to_its_edges(llama_8b: Mapping[str, Any], llama_1b: Mapping[str, Any]) -> None:
    """23 GiB for the target's cache and 19 with the draft, at 1 MiB a token; 2 GiB less are certain."""
    picture = draw(by_hand(llama_8b, llama_1b, Workload(batch=2)))[1]
    for panel, possible in ((0, 23 * 1024), (1, 19 * 1024)):
        corners = region(picture, panel, "#d5ecd4")
        assert {(possible - 2048) // batch for batch in (1, 2, 4, 8)} <= {x for x, _ in corners}
        assert ((possible - 2048) // 2, 2.0) in corners
        assert (possible // 2, 2.0) in region(picture, panel, "#f0b64a")
    assert picture.alt == (
        "At 2 sequences the target alone fits up to 10,752 tokens and may fit up to 11,776, "
        "the pair fits up to 8,704 tokens and may fit up to 9,728; asked for were 8,192 tokens a sequence."
    )


def test_the_map_names_its_regions_and_what_was_asked(drawn: dict[str, Picture]) -> None:
    told = words(drawn["fit-map"])
    for text in (
        "Target alone",
        "With Qwen/Qwen3-0.6B",
        "fits",
        "tight: it may fit",
        "does not fit",
        "Context (tokens a sequence)",
        "Batch (sequences)",
        "asked for: 4 sequences of 8,192 tokens",
    ):
        assert text in told


def test_speed_is_the_prediction_at_each_k(pair: Findings, drawn: dict[str, Picture]) -> None:
    shown = pair.shown
    assert shown is not None
    assert shown.offer.prediction is not None
    predicted = {k: span for k, span in shown.offer.prediction.by_num_speculative_tokens if k}
    axes = drawn["speedup"].figure.axes[0]
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    found = {
        round(box.get_x() + box.get_width() / 2): (box.get_y(), box.get_y() + box.get_height()) for box in boxes
    }
    assert found.keys() == predicted.keys()
    for k, span in found.items():
        assert span == pytest.approx((predicted[k].low, predicted[k].high))
    told = words(drawn["speedup"])
    assert "1 ×: plain decoding, breaks even" in told
    assert "the same at the planned k = 3" in told


def a_trial(low: float | None, high: float | None) -> PairTrial:
    return PairTrial(
        document={
            "speedup": {"value": 1.5, "low": low, "high": high},
            "num_speculative_tokens": 5,
            "measured_at": "2026-01-02T03:04:05+00:00",
            "backend": "builtin",
            "device": {"name": "CPU", "driver": None},
            "answer": "helps",
            "outcome": "confirms",
            "comparisons": [],
        }
    )


@pytest.mark.parametrize(
    ("low", "high", "text"), [(1.25, 1.75, "1.50 (1.25 – 1.75) ×"), (None, None, "1.50 ×"), (0.01, 99.0, "99.00")]
)
def test_measured_points_stand_with_their_interval(low: float | None, high: float | None, text: str) -> None:
    findings = of_pair(l40s(), engine_profile("vllm"), trials={"Qwen/Qwen3-0.6B": a_trial(low, high)})
    (point,) = measured_speedups(findings)
    assert (point.k, point.value) == (5, 1.5)
    picture = draw(findings)[2]
    assert text in words(picture)
    assert "Measured here on 2026-01-02: builtin backend, CPU." in words(picture)
    assert "at k = 5 with Qwen/Qwen3-0.6B" in picture.alt
    # A wild interval must not flatten all else.
    assert picture.figure.axes[0].get_ylim()[1] < 10


def test_tokens_are_those_of_the_engines_pool(pair: Findings, drawn: dict[str, Picture]) -> None:
    shown = pair.shown
    assert shown is not None
    assert shown.cost is not None
    pools = [pair.alone.plan.cache, pair.told.plan.cache]
    boxes = [patch for patch in drawn["kv-tokens"].figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert len(boxes) == 4
    for pool, certain, rest in zip(pools, boxes[::2], boxes[1::2], strict=True):
        assert pool is not None
        assert certain.get_width() == pool.tokens
        assert rest.get_x() == certain.get_width()
    assert "KV cache (tokens)" in words(drawn["kv-tokens"])


@pytest.mark.parametrize(
    ("engine", "predicted", "names", "said"),
    [
        ("vllm", True, ["memory", "fit-map", "speedup", "kv-tokens"], 0),
        ("vllm", False, ["memory", "fit-map", "kv-tokens"], 1),
        ("llama.cpp", True, ["memory", "fit-map", "speedup"], 1),
    ],
)
def test_what_is_missing_is_said(engine: str, predicted: bool, names: list[str], said: int) -> None:
    findings = of_pair(l40s(), engine_profile(engine), workload=Workload(), predicted=predicted)
    assert [picture.name for picture in draw(findings)] == names
    assert len(left_out(findings)) == said


def test_without_a_draft_there_are_two_pictures(llama_8b: Mapping[str, Any]) -> None:
    alone = Serving(target=made_model("target", llama_8b), draft=None, workload=Workload())
    findings = find(alone, (), (made_device(40),), LinearEngine(target_gib=16))
    assert [picture.name for picture in draw(findings)] == ["memory", "fit-map"]
    assert left_out(findings) == ("no pictures of speed and of KV tokens: no draft was asked for",)


def test_several_ranks_each_have_their_bars(llama_8b: Mapping[str, Any]) -> None:
    alone = Serving(target=made_model("target", llama_8b), draft=None, workload=Workload(pp=2))
    devices = (made_device(40), made_device(80, index=1))
    told = words(draw(find(alone, (), devices, LinearEngine(target_gib=16)))[0])
    assert "Rank 0 (stage 0), 40 GiB card" in told
    assert "Rank 1 (stage 1), 80 GiB card" in told
    assert told.count("inside the engine's budget") == 2 + told.count("to spare inside the engine's budget")


def test_pictures_of_one_page_do_not_share_ids_and_ask_for_nothing() -> None:
    findings = of_pair(l40s(), engine_profile("vllm"), names=(HOSTILE, f"{HOSTILE}-draft"))
    texts = [svg_text(picture) for picture in draw(findings)]
    ids: list[str] = []
    for text in texts:
        assert text.startswith("<svg ")
        root = ElementTree.fromstring(text)  # noqa: S314 - as above
        own = [element.get("id", "") for element in root.iter() if element.get("id")]
        ids += own
        for reference in re.findall(r'(?:href="|url\()(#[^")]+)', text):
            assert reference[1:] in own
        assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
            *("svg", "g", "path", "defs", "use", "text", "tspan", "clipPath", "rect", "pattern"),
        }
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
        assert "\u202e" not in text
        assert "<script" not in text
    assert len(ids) == len(set(ids))


def test_the_same_findings_give_the_same_bytes(pair: Findings, tmp_path: Path) -> None:
    for ending in ENDINGS:
        first, second = tmp_path / f"first{ending}", tmp_path / f"second{ending}"
        write_pictures(draw(pair), str(first))
        write_pictures(draw(pair), str(second))
        assert first.read_bytes() == second.read_bytes(), ending


def test_each_ending_is_its_format(pair: Findings, drawn: dict[str, Picture], tmp_path: Path) -> None:
    pictures = list(drawn.values())
    for ending in ENDINGS:
        write_pictures(pictures, str(tmp_path / f"all{ending.upper()}"))
    with Image.open(tmp_path / "all.PNG") as image:
        assert image.format == "PNG"
        width, height = image.size
    heights = [picture.figure.get_figheight() for picture in pictures]
    assert width == 1350
    assert height == pytest.approx(150 * sum(heights), abs=len(heights))
    pdf = (tmp_path / "all.PDF").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type /Page\b", pdf)) == len(pictures)
    sheet = ElementTree.parse(tmp_path / "all.SVG").getroot()  # noqa: S314 - as above
    tops = [float(inner.get("y", "nan")) for inner in sheet]
    assert [inner.get("id") for inner in sheet] == [picture.name for picture in pictures]
    assert tops == sorted(set(tops))
    with pytest.raises(UsageError, match=r"\.gif"):
        write_pictures(pictures, str(tmp_path / "all.gif"))
    assert PLOT_ENDINGS == ENDINGS


def test_nothing_global_is_changed(pair: Findings) -> None:
    before = dict(mpl.rcParams)
    for picture in draw(pair):
        svg_text(picture)
    assert dict(mpl.rcParams) == before


def test_a_user_style_does_not_reach_the_pictures(pair: Findings) -> None:
    plain = [svg_text(picture) for picture in draw(pair)]
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30, "text.usetex": True, "svg.fonttype": "path"}):
        styled = [svg_text(picture) for picture in draw(pair)]
    assert styled == plain


def test_neither_pyplot_nor_a_display_is_needed() -> None:
    code = "import sys, planner.pictures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("name", "most", "shown"),
    [
        ("Qwen/Qwen3-8B", 40, "Qwen/Qwen3-8B"),
        ("an-organisation/a-model", 10, "a-model"),
        ("org/abcdefghijklmnop", 9, "abcd…mnop"),
        ("a\nb\u202e", 40, "a\\nb\\u202e"),
        ("no-slash-but-long", 7, "no-…ong"),
    ],
)
def test_long_names_are_shortened(name: str, most: int, shown: str) -> None:
    assert short_name(name, most) == shown


def luminance(color: str) -> float:
    red, green, blue = mpl.colors.to_rgb(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_terms_differ_in_lightness() -> None:
    shades = [luminance(color) for color in TERM_COLORS.values()]
    assert shades == sorted(shades)
    assert all(after - before > 0.1 for before, after in pairwise(shades))


def test_text_keeps_clear_of_the_edges(drawn: dict[str, Picture]) -> None:
    """No label runs out of its picture, as drawn with the font that ships with matplotlib."""
    for picture in drawn.values():
        picture.figure.savefig(io.BytesIO(), format="png", dpi="figure")
        width, height = picture.figure.canvas.get_width_height()
        for text in picture.figure.findobj(Text):
            assert isinstance(text, Text)
            box = text.get_window_extent()
            if text.get_visible() and text.get_text():
                assert box.x0 >= -1, text.get_text()
                assert box.x1 <= width + 1, text.get_text()
                assert box.y0 >= -1, text.get_text()
                assert box.y1 <= height + 1, text.get_text()
