"""The files under deploy/ say what is so: they are read by their formats' rules, and what they run is run here.

The schemas hold the fields that matter, by the names of the public documentation (Kubernetes API apps/v1, GitHub's
workflow syntax, systemd.unit, systemd.service), and refuse all others. Where a C compiler is, the commands run on
the real pynvml behind a stand-in driver. No cluster, runner, Slurm or systemd is started.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml
from fake_nvml.build import build_library, find_compiler, scenario_environment
from fake_nvml.scenarios import H100_NAME, MIG_H100, h100
from jsonschema import Draft202012Validator

from planner import __version__
from planner.cli.main import COMMANDS, group

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
GUIDE = ROOT / "docs" / "guides" / "pre-deployment.md"
WORKFLOW = DEPLOY / "github-actions" / "specplan.yml"
PROLOG = DEPLOY / "slurm" / "prolog.sh"
DROP_IN = DEPLOY / "systemd" / "vllm.service.d" / "specplan-check.conf"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
GIB = 2**30

IDLE = h100(0) + h100(1)
TAKEN = h100(0, f"used={40 * GIB}") + h100(1) + f"process gpu=0 pid=4242 used={39 * GIB} name=python3\n"
LOST = IDLE + "fail call=nvmlInitWithFlags code=18\n"
#: What a container with one instance sees of a GPU in MIG mode.
SLICE = "".join(line for line in MIG_H100.splitlines(keepends=True) if not line.startswith(("slice", "process")))
SLICE += (
    f"slice gpu=0 uuid=MIG-aaaa name={H100_NAME}~MIG~3g.40gb total={40_448 * 2**20} used={40 * 2**20} cc=9.0\n"
)
SLICE_TAKEN = SLICE.replace(f"used={40 * 2**20}", f"used={20 * GIB}")

Schema = dict[str, Any]


def _object(required: Schema, optional: Schema | None = None) -> Schema:
    """A mapping with these keys and no others."""
    fields = {**required, **(optional or {})}
    return {"type": "object", "required": [*required], "properties": fields, "additionalProperties": False}


def _list(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": items}


TEXT: Final[Schema] = {"type": "string", "minLength": 1}
TEXTS: Final[Schema] = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}}
NAME: Final[Schema] = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
GPUS: Final[Schema] = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "patternProperties": {r"^nvidia\.com/(gpu|mig-\dg\.\d+gb)$": {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}
CONTAINER: Final = _object(
    {"name": NAME, "image": TEXT, "command": _list(TEXT), "resources": _object({"limits": GPUS})},
    {
        "env": _list(_object({"name": TEXT, "value": {"type": "string"}})),
        "ports": _list(_object({"containerPort": {"type": "integer", "minimum": 1, "maximum": 65535}})),
        "volumeMounts": _list(_object({"name": NAME, "mountPath": TEXT}, {"readOnly": {"type": "boolean"}})),
        "terminationMessagePolicy": {"enum": ["File", "FallbackToLogsOnError"]},
    },
)
VOLUME: Final[Schema] = {
    **_object(
        {"name": NAME},
        {"configMap": _object({"name": NAME}), "emptyDir": _object({}, {"medium": {"const": "Memory"}})},
    ),
    "minProperties": 2,
    "maxProperties": 2,
}
POD: Final = _object(
    {"initContainers": _list(CONTAINER), "containers": _list(CONTAINER), "volumes": _list(VOLUME)}
)
DEPLOYMENT: Final = _object(
    {
        "apiVersion": {"const": "apps/v1"},
        "kind": {"const": "Deployment"},
        "metadata": _object({"name": NAME}),
        "spec": _object(
            {
                "replicas": {"type": "integer", "minimum": 1},
                "selector": _object({"matchLabels": TEXTS}),
                "template": _object({"metadata": _object({"labels": TEXTS}), "spec": POD}),
            },
            {"strategy": _object({"type": {"enum": ["Recreate", "RollingUpdate"]}})},
        ),
    }
)
#: The workflow is read with every scalar as text, so that its key ``on`` stays one.
STEP: Final[Schema] = {
    **_object(
        {},
        {
            "name": TEXT,
            "if": TEXT,
            "run": TEXT,
            "uses": {"type": "string", "pattern": r"^actions/[a-z-]+@v\d+$"},
            "with": TEXTS,
        },
    ),
    "oneOf": [{"required": ["run"]}, {"required": ["uses"]}],
    "dependentRequired": {"with": ["uses"]},
}
JOB: Final = _object(
    {"runs-on": {"anyOf": [TEXT, _list(TEXT)]}, "steps": _list(STEP)}, {"needs": TEXT, "if": TEXT}
)
WORKFLOW_SCHEMA: Final = _object(
    {
        "name": TEXT,
        "on": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"enum": ["pull_request", "workflow_dispatch"]},
        },
        "permissions": _object({"contents": {"const": "read"}}),
        "jobs": {"type": "object", "minProperties": 1, "additionalProperties": JOB},
    }
)
#: Settings of a drop-in, by section, and what their values look like.
UNIT: Final = {
    "Unit": {"StartLimitIntervalSec": r"\d+(s|min|h)?", "StartLimitBurst": r"\d+"},
    "Service": {
        "ExecStartPre": r"/\S+ .+",
        "TimeoutStartSec": r"\d+(s|min)?",
        "Restart": r"on-failure|no|always",
        "RestartSec": r"\d+(s|min)?",
    },
}


def problems(schema: Schema, document: object) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(document)]


@cache
def manifest(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@cache
def workflow() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(WORKFLOW.read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506 - text alone
    return found


def runs() -> list[str]:
    """What the workflow's steps run, in order."""
    return [step["run"] for job in workflow()["jobs"].values() for step in job["steps"] if "run" in step]


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#", ";"))
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read_string(DROP_IN.read_text(encoding="utf-8"))
    return parser


def commands() -> list[tuple[str, list[str]]]:
    """(file, words) of every command of ours: those that run, and those in comments."""
    found = [(path.name, container["command"]) for path in MANIFESTS for container in containers(path, "specplan")]
    found += [(WORKFLOW.name, shlex.split(text)) for text in runs() if text.startswith("specplan ")]
    found.append((DROP_IN.name, shlex.split(unit()["Service"]["ExecStartPre"])))
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        found += [(path.name, shlex.split(line)) for line in re.findall(r"^# (specplan .*)$", text, re.MULTILINE)]
    asked = re.search(r'"\$specplan" (check .*) 2>&1', PROLOG.read_text(encoding="utf-8"))
    assert asked is not None
    wait = asked.group(1).replace("${SPECPLAN_WAIT:-30}", "30")
    return [*found, (PROLOG.name, ["specplan", *shlex.split(wait)])]


def containers(path: Path, name: str) -> list[dict[str, Any]]:
    pod = manifest(path)["spec"]["template"]["spec"]
    return [found for found in (*pod["initContainers"], *pod["containers"]) if found["name"] == name]


# --- what the files are --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_deployment_is_one(path: Path) -> None:
    assert problems(DEPLOYMENT, manifest(path)) == []
    spec = manifest(path)["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    pod = spec["template"]["spec"]
    every = [*pod["initContainers"], *pod["containers"]]
    mounted = {mount["name"] for container in every for mount in container.get("volumeMounts", [])}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert len({json.dumps(container["resources"]) for container in every}) == 1  # the same GPUs are shared
    [mount] = containers(path, "specplan")[0]["volumeMounts"]
    assert containers(path, "specplan")[0]["command"][2].startswith(mount["mountPath"] + "/")
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == mount["name"]]
    text = path.read_text(encoding="utf-8")
    assert f"# kubectl create configmap {volume['configMap']['name']} --from-file=plan.json\n" in text
    assert f"# kubectl apply --filename={path.name}\n" in text


def test_what_the_schemas_refuse() -> None:
    pod = json.loads(json.dumps(manifest(MANIFESTS[0])))
    container = pod["spec"]["template"]["spec"]["initContainers"][0]
    container["resources"]["limits"] = {"nvidia.com/gpus": 1}
    container["volumeMount"] = []
    assert len(problems(DEPLOYMENT, pod)) == 2
    assert problems(STEP, {"uses": "actions/checkout@v4", "run": "true"}) != []
    assert problems(STEP, {"run": "true", "with": {"name": "x"}}) != []


def test_the_workflow_is_one() -> None:
    assert problems(WORKFLOW_SCHEMA, workflow()) == []
    jobs = workflow()["jobs"]
    assert {job["needs"] for job in jobs.values() if "needs" in job} <= set(jobs)
    steps = [step for job in jobs.values() for step in job["steps"] if "with" in step]
    kept = {step["with"]["name"]: step["with"]["path"] for step in steps if "upload-artifact" in step["uses"]}
    taken = {step["with"]["name"] for step in steps if "download-artifact" in step["uses"]}
    assert taken <= set(kept)
    told = " ".join(runs())
    assert all(f"--json {path}" in told or f"--junit {path}" in told for path in kept.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"pip install (\S+)", told) == [f"{project['name']}=={__version__}"] * len(jobs)


def test_the_drop_in_is_one() -> None:
    parser = unit()
    assert parser.sections() == list(UNIT)
    for section, settings in UNIT.items():
        assert list(parser[section]) == list(settings)
        assert all(re.fullmatch(settings[name], value) for name, value in parser[section].items())
    wait = float(re.findall(r"--wait (\d+)", parser["Service"]["ExecStartPre"])[0])
    assert wait < float(parser["Service"]["TimeoutStartSec"])


def test_systemd_takes_the_drop_in(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    here = shutil.which("true")
    assert here is not None
    (tmp_path / "vllm.service").write_text(f"[Service]\nExecStart={here}\n", encoding="utf-8")
    place = tmp_path / "vllm.service.d" / DROP_IN.name
    place.parent.mkdir()
    place.write_text(
        DROP_IN.read_text(encoding="utf-8").replace("/opt/specplan/bin/specplan", here), encoding="utf-8"
    )
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / "vllm.service")],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    about_ours = [line for line in verified.stderr.splitlines() if "vllm" in line or DROP_IN.name in line]
    assert (verified.returncode, about_ours) == (0, [])


@pytest.mark.parametrize(("name", "words"), commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_command_is_ours(name: str, words: list[str]) -> None:
    """Its options exist and take what they are given; nothing is run."""
    program, command, *arguments = words
    assert Path(program).name == "specplan"
    assert command in COMMANDS
    context = click.Context(group)
    found = group.get_command(context, command)
    assert found is not None
    found.make_context(command, arguments, parent=context)


def test_every_file_has_a_command() -> None:
    assert {name for name, _ in commands()} == {path.name for path in FILES}


def test_the_guide_shows_the_files() -> None:
    """Each is linked, and a block that follows a link is a piece of the file."""
    text = GUIDE.read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(\.\./\.\./(deploy/[^)]+)\)", text))
    assert linked == {path.relative_to(ROOT).as_posix() for path in FILES}
    shown = re.findall(r"\]\(\.\./\.\./(deploy/[^)]+)\)[^`]*?\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(shown) == 4
    for name, block in shown:
        assert block in (ROOT / name).read_text(encoding="utf-8"), name


# --- what they run -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A stand-in driver, a `specplan` in PATH, and a folder to work in."""

    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / "bin" / "specplan"

    def run(self, scenario: str, words: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        settings = {"HOME": str(home), "LC_ALL": "C.UTF-8", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
        driver = scenario_environment(self.folder / "driver", scenario)
        path = f"{self.program.parent}:{os.environ['PATH']}"
        ran = subprocess.run(
            words,
            env={**settings, **driver, "PATH": path, **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in ran.stdout + ran.stderr
        return ran

    def plan(self, command: list[str], name: str) -> dict[str, Any]:
        """The report of a `specplan fit … --json plan.json`, kept under ``name``."""
        assert command[-2:] == ["--json", "plan.json"]
        ran = self.run("", [*command[:-1], name])
        assert ran.returncode == 0, ran.stdout + ran.stderr
        found: dict[str, Any] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        return found


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    if find_compiler() is None:
        pytest.skip("no C compiler: the stand-in libnvidia-ml.so.1 cannot be built")
    found = Machine(folder=tmp_path_factory.mktemp("deploy"))
    build_library(found.folder / "driver")
    found.program.parent.mkdir()
    found.program.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m planner.cli.main "$@"\n', encoding="utf-8"
    )
    found.program.chmod(0o755)
    (found.folder / "broken.json").write_text('{"schema": "specplan.report/1"', encoding="utf-8")
    return found


def fit_command(path: Path) -> list[str]:
    """The `specplan fit` in a file's head."""
    return next(words for name, words in commands() if name == path.name and words[1] == "fit")


@pytest.fixture(scope="module")
def report(machine: Machine) -> Path:
    """Of two H100, by the command of the first manifest."""
    machine.plan(fit_command(DEPLOY / "kubernetes" / "init-container.yaml"), "plan.json")
    return machine.folder / "plan.json"


#: name: (manifest, scenario, exit code, first words of what is printed)
PODS: dict[str, tuple[str, str, int, str]] = {
    "idle": ("init-container", IDLE, 0, "HOLDS: "),
    "taken": ("init-container", TAKEN, 3, "DOES NOT HOLD: "),
    "one-gpu": ("init-container", h100(0), 4, "CANNOT TELL: "),
    "mig": ("init-container-mig", SLICE, 0, "HOLDS: "),
    "mig-taken": ("init-container-mig", SLICE_TAKEN, 3, "DOES NOT HOLD: "),
    "mig-whole-gpu": ("init-container-mig", h100(0), 4, "CANNOT TELL: "),
}


@pytest.mark.parametrize("name", PODS)
def test_the_init_container(name: str, machine: Machine) -> None:
    stem, scenario, exit_code, says = PODS[name]
    path = DEPLOY / "kubernetes" / f"{stem}.yaml"
    mounted = machine.folder / f"{stem}.json"
    if not mounted.exists():
        machine.plan(fit_command(path), mounted.name)
    command = [
        str(mounted) if word.startswith("/plans/") else word for word in containers(path, "specplan")[0]["command"]
    ]
    command[command.index("--wait") + 1] = "0"
    ran = machine.run(scenario, command)
    assert (ran.returncode, ran.stdout[: len(says)]) == (exit_code, says), ran.stderr


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_the_container_runs_what_was_planned(path: Path, machine: Machine) -> None:
    found = machine.plan(fit_command(path), f"again-{path.stem}.json")
    [container] = containers(path, "vllm")
    assert container["command"] == found["recommendation"]["command"]
    assert container["image"] == f"vllm/vllm-openai:v{found['engine']['version_assumed']}"
    [count] = container["resources"]["limits"].values()
    assert count == len(found["devices"])
    data = (machine.folder / f"again-{path.stem}.json").stat().st_size
    assert data < 2**20  # all that a ConfigMap may hold


def test_the_workflow_runs(machine: Machine, report: Path) -> None:
    """Its own steps, in a shell, in their order; what it installs is here already."""
    for text in runs():
        if text.startswith("specplan "):
            ran = machine.run(IDLE, ["bash", "-e", "-o", "pipefail", "-c", text])
            assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "<testsuite" in (machine.folder / "specplan.xml").read_text(encoding="utf-8")


def test_a_workflow_ends_on_a_no(machine: Machine, report: Path) -> None:
    [check] = [text for text in runs() if text.startswith("specplan check ")]
    ran = machine.run(TAKEN, ["bash", "-e", "-o", "pipefail", "-c", check.replace("--wait 30", "--wait 0")])
    assert ran.returncode == 3
    assert "<failure" in (machine.folder / "specplan.xml").read_text(encoding="utf-8")


def test_the_prolog_is_a_script() -> None:
    assert os.access(PROLOG, os.X_OK)
    subprocess.run(["bash", "-n", str(PROLOG)], check=True)
    told = PROLOG.read_text(encoding="utf-8")
    assert not re.search(r"^[^#]*\b(scontrol|scancel|squeue|sinfo)\b", told, re.MULTILINE)  # slow, and drains


def prolog(machine: Machine, scenario: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """As slurmstepd starts it; PATH may be anything there."""
    given = {"PATH": "/nonexistent", "SPECPLAN": str(machine.program), "SPECPLAN_WAIT": "0", "SLURM_JOB_ID": "17"}
    return machine.run(scenario, [str(PROLOG)], **{**given, "SLURM_SCRIPT_CONTEXT": "prolog_task", **environment})


#: name: (scenario, report, CUDA_VISIBLE_DEVICES, exit code, first words, further words)
TASKS: dict[str, tuple[str, str, str, int, str, str]] = {
    "idle": (IDLE, "plan.json", "0,1", 0, "HOLDS: ", ""),
    "taken": (TAKEN, "plan.json", "0,1", 3, "DOES NOT HOLD: ", "python3 (pid 4242) holds 39.00 GiB"),
    "taken-beside-the-job": (TAKEN + h100(2), "plan.json", "1,2", 0, "HOLDS: ", ""),
    "one-gpu-too-few": (IDLE, "plan.json", "1", 4, "CANNOT TELL: ", "no further GPU"),
    "broken-report": (IDLE, "broken.json", "0,1", 2, "error: broken.json: ", "hint: "),
    "no-report": (IDLE, "missing.json", "0,1", 2, "error: missing.json: ", "hint: "),
    "driver-mismatch": (LOST, "plan.json", "0,1", 6, "error: ", "hint: "),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_task_prolog(name: str, machine: Machine, report: Path) -> None:
    scenario, plan, visible, exit_code, says, further = TASKS[name]
    ran = prolog(machine, scenario, SPECPLAN_REPORT=plan, CUDA_VISIBLE_DEVICES=visible)
    assert ran.returncode == exit_code, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"print specplan: {says}")
    assert further in ran.stdout
    assert all(line.startswith("print specplan: ") for line in ran.stdout.splitlines())
    refused = f"job 17 is not started on this node: the check of {plan} ended with {exit_code}"
    assert (refused in ran.stdout) == (exit_code != 0)


def test_a_task_prolog_without_specplan_refuses(machine: Machine, report: Path) -> None:
    ran = prolog(machine, IDLE, SPECPLAN_REPORT="plan.json", SPECPLAN="/nowhere/specplan")
    assert ran.returncode == 127
    assert "No such file" in ran.stdout


def test_what_the_prolog_lets_through(machine: Machine, report: Path) -> None:
    without = prolog(machine, TAKEN)
    assert (without.returncode, without.stdout, without.stderr) == (0, "", "")
    draining = prolog(machine, TAKEN, SPECPLAN_REPORT="plan.json", SLURM_SCRIPT_CONTEXT="prolog_slurmd")
    assert (draining.returncode, draining.stdout) == (0, "")
    assert "nothing was checked" in draining.stderr


@pytest.mark.parametrize(
    ("scenario", "plan", "engine", "exit_code", "says"),
    [
        (IDLE, "plan.json", "", 0, "HOLDS: "),
        (TAKEN, "plan.json", "", 3, "DOES NOT HOLD: "),
        (IDLE, "plan.json", "0.1.0", 4, "CANNOT TELL: "),
        (IDLE, "broken.json", "", 2, ""),
        (LOST, "plan.json", "", 6, ""),
    ],
)
def test_exec_start_pre(
    scenario: str, plan: str, engine: str, exit_code: int, says: str, machine: Machine, report: Path
) -> None:
    planned = json.loads(report.read_text(encoding="utf-8"))["engine"]["version_assumed"]
    python = machine.folder / "python"
    python.write_text(f"#!/bin/sh\necho {engine or planned}\n", encoding="utf-8")
    python.chmod(0o755)
    here = {
        "/opt/specplan/bin/specplan": str(machine.program),
        "/etc/specplan/plan.json": plan,
        "/opt/vllm/bin/python": str(python),
    }
    line = unit()["Service"]["ExecStartPre"].replace("--wait 60", "--wait 0")
    words = [here.get(word, word) for word in shlex.split(line)]
    assert set(here.values()) <= set(words)
    ran = machine.run(scenario, words)
    assert ran.returncode == exit_code, ran.stderr
    assert ran.stdout.startswith(says)
    assert says or "hint: " in ran.stderr
