"""The house holds: imports run downward, heavy libraries have one home, modules stay small."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*ROOT.glob("planner/**/*.py"), *ROOT.glob("model_catalog/**/*.py")])

#: A foreign library and the only modules that may import it, at any depth of the module.
HOMES = {
    "huggingface_hub": {"model_catalog.hub", "model_catalog.hub_download"},
    "pynvml": {"planner.nvml"},
    "yaml": {"planner.commands.reading.config_file"},
    "matplotlib": {
        *("planner.pictures.page", "planner.pictures.files", "planner.pictures.memory_picture"),
        *("planner.pictures.map_picture", "planner.pictures.speedup_picture", "planner.pictures.tokens_picture"),
    },
    "PIL": {"planner.pictures.files"},
    "jinja2": {"planner.page.drawing"},
    "markupsafe": {"planner.page.drawing"},
    "pydantic": {"planner.report.document", "planner.report.trial_document", "planner.report.fleet_document"},
    "ray": {"planner.fleet.ray_child"},
}
#: What only the child of a trial may import.
CHILD = "planner.trial.worker"
CHILDS_OWN = {"torch", "transformers", "accelerate", "tokenizers"}
NOWHERE = {"safetensors", "numpy"}

#: Lower floors first. A module may import its own floor and those below it.
FLOORS = (
    ("model_catalog.units", "model_catalog.bounds", "model_catalog.errors", "model_catalog.dtypes"),
    ("model_catalog",),
    ("planner.errors", "planner.devices", "planner.cuda_total", "planner.workload", "planner.memory"),
    (
        *("planner.engines", "planner.verdict", "planner.free_share", "planner.planning", "planner.capacity"),
        *("planner.calibration", "planner.recheck", "planner.fit_map"),
    ),
    ("planner.speculation", "planner.commands"),
    (
        *("planner.nvml", "planner.nvml_clocks", "planner.nvml_errors", "planner.nvml_fields"),
        "planner.nvml_memory",
        *("planner.declared_gpus", "planner.device_selection", "planner.host_memory"),
        *("planner.trial", "planner.logs", "planner.calibration_store", "planner.child_process"),
        "planner.fleet",
    ),
    ("planner.report",),
    ("planner.pictures",),
    ("planner.page",),
    ("planner.service",),
    ("planner.cli", "planner.api"),
)
#: Catalogue modules that read or write; the pure ones must not import them.
CATALOGUE_IO = {
    "model_catalog.hub",
    "model_catalog.hub_answers",
    "model_catalog.hub_search",
    "model_catalog.disk_repos",
    "model_catalog.catalogue",
    "model_catalog.local_folder",
    "model_catalog.snapshot_store",
    "model_catalog.tokenizer_source",
}
#: Modules of the planner that keep files of their own.
PLANNER_IO = {"planner.trial.store", "planner.calibration_store"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def floor_of(module: str) -> int:
    best, length = -1, -1
    for number, prefixes in enumerate(FLOORS):
        for prefix in prefixes:
            if (module == prefix or module.startswith(prefix + ".")) and len(prefix) > length:
                best, length = number, len(prefix)
    return best


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports_run_downward(path: Path) -> None:
    own = module_name(path)
    if own == "planner":
        return
    for name in imports(path):
        if name.split(".")[0] in {"planner", "model_catalog"} and name != "planner":
            assert floor_of(name) <= floor_of(own), f"{own} imports {name} from a higher floor"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_foreign_libraries_have_one_home(path: Path) -> None:
    own = module_name(path)
    for name in imports(path):
        top = name.split(".")[0]
        assert top not in NOWHERE, f"{own} imports {name}"
        assert top not in CHILDS_OWN or own.startswith(CHILD), f"{own} imports {name}"
        assert not name.startswith(CHILD) or own.startswith(CHILD), f"{own} imports {name}, which needs torch"
        assert own in HOMES.get(top, {own}), f"{own} imports {name}"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_pure_modules_do_not_import_those_that_read(path: Path) -> None:
    own = module_name(path)
    if own.startswith(("planner.report", "planner.service", "planner.cli")) or own in CATALOGUE_IO | PLANNER_IO:
        return
    assert not CATALOGUE_IO & set(imports(path)), f"{own} reaches input or output"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_every_module_is_on_a_floor() -> None:
    assert [name for name in map(module_name, SOURCES) if floor_of(name) < 0 and name != "planner"] == []


def test_no_import_circles() -> None:
    graph = {module_name(path): set(imports(path)) for path in SOURCES}
    graph["planner"] = set()  # imports its API when asked for it: tests/test_python_api.py
    known = set(graph)
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"circle: {' -> '.join((*trail, name))}"
        if name in done:
            return
        for below in sorted(graph[name] & known - {name}):
            visit(below, (*trail, name))
        done.add(name)

    for module in sorted(known):
        visit(module, ())
