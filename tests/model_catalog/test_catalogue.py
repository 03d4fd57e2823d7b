"""The embedded catalogue: its rows can be planned, claim nothing that does not hold, and are found by name.

The counts that rows call the Hub's are those of its API, as collected in llmfit 1.1.17 (PyPI).
"""

import json
import re
import time
from pathlib import Path

import pytest

from model_catalog import catalogue
from model_catalog.architecture import ArchitectureSpec
from model_catalog.catalogue import catalogue_names, find_row, lookup, near_names, rows
from model_catalog.config_reader import read_architecture
from model_catalog.errors import ConfigError, UsageError
from model_catalog.families.heads import draft_head_method, read_draft_head
from model_catalog.model import describe
from model_catalog.quantization import read_quantization
from model_catalog.snapshot import ModelSnapshot, RepoKind, RepoRef, SnapshotSource
from model_catalog.snapshot_store import add_user_snapshot
from model_catalog.weight_derivation import derive_groups, layouts

DATA = Path(catalogue.__file__).with_name("data") / "models.jsonl"
LINES = DATA.read_text(encoding="utf-8").splitlines()
ROWS = tuple(rows())
IDS = [row.repo_id for row in ROWS]
CLAIMS_COUNT = "the structure's parameter count equals the Hub's"
CLAIMS_COUNT_NEARLY = re.compile(r"parameter count equals the Hub's to ([\d,]+) elements")


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_row_can_be_planned(row: ModelSnapshot) -> None:
    model = describe(row)
    assert model.weights.stored.low_bytes > 0
    assert model.weights.resident_bytes().low_bytes > 0
    assert model.architecture.decoder_layers
    assert model.weights.complete


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_row_is_a_catalogue_row_with_a_source(row: ModelSnapshot) -> None:
    assert row.source is SnapshotSource.CATALOGUE
    assert row.commit is None
    assert row.revision is None
    assert row.kind in {RepoKind.MODEL, RepoKind.DRAFT_HEAD}
    assert (row.kind is RepoKind.DRAFT_HEAD) == (draft_head_method(row.config) is not None)
    assert len(row.facts_source) > 20
    assert RepoRef.parse(row.repo_id).repo_id == row.repo_id
    assert ModelSnapshot.from_json(row.to_json()) == row


def possible_counts(spec: ArchitectureSpec) -> set[int]:
    """Counts that a checkpoint of this structure may have: MTP layers left out, or stored with the model's own or
    repeated vocabulary tables or without; a tied head stored once more; early Llama's and GPT's buffers beside.
    """
    table = spec.vocabulary_size * spec.hidden_size
    without, with_mtp = spec.parameters(), spec.parameters(with_mtp=True)
    tables = 2 * table * len(spec.mtp_layers)
    bases = {without, with_mtp, with_mtp - tables, with_mtp + tables}
    copies = {0, table} if spec.tied_head else {0}
    return {base + copy for base in bases for copy in copies}


CLAIMED = [row for row in ROWS if row.facts_source.endswith(CLAIMS_COUNT)]
#: These store their causal masks, context squared a layer, as elements (``test_parameter_counts_dense``
#: holds those to the element).
MASKS_SHARE = {"gpt2": 0.10, "gpt_neox": 0.25}


@pytest.mark.parametrize("row", CLAIMED, ids=[row.repo_id for row in CLAIMED])
def test_claimed_parameter_count_holds(row: ModelSnapshot) -> None:
    spec = read_architecture(row.config, subject=row.repo_id)
    published = row.published_parameters
    assert published is not None
    possible = possible_counts(spec)
    if published in possible:
        return
    surplus = published - max(count for count in possible if count < published)
    if spec.model_type in MASKS_SHARE:
        assert surplus <= MASKS_SHARE[spec.model_type] * published
        return
    # Rotary frequencies: half a head a layer, in checkpoints of 2023.
    assert surplus == len(spec.decoder_layers) * (spec.hidden_size // spec.attention_heads // 2)


NEARLY = [row for row in ROWS if CLAIMS_COUNT_NEARLY.search(row.facts_source)]


@pytest.mark.parametrize("row", NEARLY, ids=[row.repo_id for row in NEARLY])
def test_nearly_equal_parameter_count_holds(row: ModelSnapshot) -> None:
    spec = read_architecture(row.config, subject=row.repo_id)
    match = CLAIMS_COUNT_NEARLY.search(row.facts_source)
    assert match is not None
    assert row.published_parameters is not None
    apart = min(abs(row.published_parameters - count) for count in possible_counts(spec))
    assert apart <= int(match.group(1).replace(",", ""))


STORED = [row for row in ROWS if "the stored elements, scales included, equal the Hub's count" in row.facts_source]


@pytest.mark.parametrize("row", STORED, ids=[row.repo_id for row in STORED])
def test_stored_elements_and_the_bytes_that_follow_hold(row: ModelSnapshot) -> None:
    spec = read_architecture(row.config, subject=row.repo_id)
    quantization = read_quantization(row.config, row.quantization_file, subject=row.repo_id)
    sizes: list[int] = []
    for layout in layouts(spec, quantization):
        groups = derive_groups(spec, quantization, layout=layout)
        if sum(group.parameters for group in groups) == row.published_parameters:
            sizes.append(sum(group.stored_bytes for group in groups))
            break
    assert sizes == [row.published_bytes]


HEADS = [row for row in ROWS if row.kind is RepoKind.DRAFT_HEAD]
COUNTED_BESIDE = re.compile(r"the Hub counts ([\d,]+): this structure(, a token table of its own)? and the maps")


@pytest.mark.parametrize("row", HEADS, ids=[row.repo_id for row in HEADS])
def test_draft_head_is_the_heads_own_weights(row: ModelSnapshot) -> None:
    """Published heads store token maps (one entry a token of either vocabulary), and some a table of their own."""
    structure = describe(row).architecture
    assert structure == read_draft_head(row.config, subject=row.repo_id)
    match = COUNTED_BESIDE.search(row.facts_source)
    if match is None:
        return
    with_table = read_draft_head(row.config, subject=row.repo_id, with_embedding=True)
    own = (with_table if match.group(2) else structure).parameters()
    maps = structure.vocabulary_size + row.config["draft_vocab_size"]
    assert own + maps == int(match.group(1).replace(",", ""))


def test_heads_of_each_common_method_are_there() -> None:
    assert {draft_head_method(row.config) for row in HEADS} >= {"eagle", "eagle3", "dflash"}
    assert len(HEADS) >= 20


def test_rows_without_a_claim_are_few() -> None:
    assert len(CLAIMED) >= 0.7 * sum(row.kind is RepoKind.MODEL for row in ROWS)


def test_every_family_of_quantisation_is_there() -> None:
    methods = {
        quantization.method
        for row in ROWS
        if (quantization := read_quantization(row.config, row.quantization_file, subject=row.repo_id)) is not None
    }
    assert methods >= {"awq", "gptq", "fp8", "mxfp4", "modelopt", "compressed-tensors"}


def test_file_is_sorted_compact_and_of_fixed_form() -> None:
    assert len(LINES) >= 150
    assert len({name.lower() for name in IDS}) == len(LINES)
    assert sorted(IDS, key=lambda name: (name.lower(), name)) == IDS
    for line, name in zip(LINES, IDS, strict=True):
        assert line.startswith(f'{{"repo_id":"{name}",')
        assert json.dumps(json.loads(line), separators=(",", ":")) == line
        assert len(line) < 16_000
    assert tuple(IDS) == catalogue_names()


#: Targets, and the small models that people draft for them with.
DEPLOYED = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Llama-3.3-70B-Instruct",
    "meta-llama/Llama-3.2-1B-Instruct",
    "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-72B-Instruct",
    "Qwen/Qwen3-0.6B",
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3-235B-A22B",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "google/gemma-3-27b-it",
    "google/gemma-3-1b-it",
    "deepseek-ai/DeepSeek-V3",
    "deepseek-ai/DeepSeek-R1",
    "moonshotai/Kimi-K2-Instruct",
    "openai/gpt-oss-120b",
    "openai/gpt-oss-20b",
    "zai-org/GLM-4.5-Air",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "HuggingFaceTB/SmolLM2-135M-Instruct",
)


@pytest.mark.parametrize("name", DEPLOYED)
def test_what_people_deploy_is_there(name: str) -> None:
    row = find_row(name)
    assert row is not None
    assert row.repo_id == name


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B"),
        ("qwen/QWEN3-32b", "Qwen/Qwen3-32B"),
        ("qwen3-32b", "Qwen/Qwen3-32B"),
        (" gpt-oss-20b ", "openai/gpt-oss-20b"),
        ("gpt-oss-120b", "openai/gpt-oss-120b"),
    ],
)
def test_names_in_any_case_and_short_names_are_found(name: str, found: str) -> None:
    row = find_row(name)
    assert row is not None
    assert row.repo_id == found


@pytest.mark.parametrize(
    "name", ["", "/", "Qwen", "Qwen3", "oss-20b", "Qwen/", 'Qwen/Qwen3-32B","kind', "no/such"]
)
def test_what_is_no_name_is_not_found(name: str) -> None:
    assert find_row(name) is None


def test_a_short_name_that_two_rows_share_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    same = {"a/twin": LINES[0], "b/twin": LINES[1], "b/single": LINES[1]}
    monkeypatch.setattr(catalogue, "_lines_by_name", lambda: same)
    assert find_row("twin") is None
    assert find_row("single") == ROWS[1]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("Qwen/Qwen3-32", "Qwen/Qwen3-32B"),
        ("qwen3-32bb", "Qwen/Qwen3-32B"),
        ("lama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("unsloth/gpt-oss-20b", "openai/gpt-oss-20b"),
        ("deepseek-v3", "deepseek-ai/DeepSeek-V3"),
    ],
)
def test_near_names_hold_what_was_meant(typed: str, meant: str) -> None:
    near = near_names(typed)
    assert meant in near
    assert len(near) <= 3


def test_nothing_is_near_to_gibberish() -> None:
    assert near_names("xyzzy-0000-plugh-zork") == ()


def test_lookup_prefers_the_users_own(tmp_path: Path) -> None:
    mine = ModelSnapshot(
        repo_id="Qwen/Qwen3-32B",
        revision=None,
        commit="0" * 40,
        source=SnapshotSource.HUB,
        kind=RepoKind.MODEL,
        config={"model_type": "qwen3"},
    )
    add_user_snapshot(mine, tmp_path)
    own = lookup("qwen/qwen3-32b", tmp_path)
    assert own is not None
    assert own.commit == mine.commit
    embedded = lookup("Qwen/Qwen3-8B", tmp_path)
    assert embedded == find_row("Qwen/Qwen3-8B")
    assert lookup("mine/unknown", tmp_path) is None


def test_lookup_finds_the_users_own_by_a_short_name(tmp_path: Path) -> None:
    mine = ModelSnapshot(
        repo_id="me/my-model",
        revision=None,
        commit=None,
        source=SnapshotSource.HUB,
        kind=RepoKind.MODEL,
        config={"model_type": "llama"},
    )
    add_user_snapshot(mine, tmp_path)
    own = lookup("My-Model", tmp_path)
    assert own is not None
    assert own.repo_id == "me/my-model"


def test_a_name_is_found_without_parsing_the_file() -> None:
    """Below 5 ms, the first time included; the best of several, as the machine may be busy."""
    best = 1.0
    for _ in range(7):
        catalogue._lines.cache_clear()
        catalogue._lines_by_name.cache_clear()
        start = time.perf_counter()
        assert find_row("deepseek-ai/DeepSeek-V3") is not None
        best = min(best, time.perf_counter() - start)
    assert best < 0.005


def test_short_names_are_names_that_the_command_line_takes() -> None:
    short = [name.rpartition("/")[2] for name in IDS]
    refused = []
    for name in short:
        try:
            RepoRef.parse(name)
        except UsageError:
            refused.append(name)
    assert refused == []


def test_a_row_with_a_broken_configuration_says_which_key() -> None:
    row = json.loads(LINES[IDS.index("Qwen/Qwen3-32B")])
    row["config"]["num_hidden_layers"] = -1
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        read_architecture(row["config"], subject=row["repo_id"])
