"""`devices`, `gpus`, `models`, `schema` and `doctor`: what they print, in words and as one document."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model_catalog.bounds import ByteRange
from planner import nvml
from planner.cli import devices as devices_module
from planner.cli import doctor
from planner.cli.main import main
from planner.cli.output import Output
from planner.devices import Device, DeviceProcess, DeviceSource
from planner.errors import NvmlMissingError
from planner.nvml import DeviceReading
from planner.service.request import PlanOptions
from planner.service.where import choose_devices
from planner.trial.backends import BACKENDS

GIB = 2**30
CARD = Device(
    index=0,
    name="Made Card",
    source=DeviceSource.NVML,
    total_bytes=24 * GIB,
    engine_total_bytes=ByteRange(low_bytes=23 * GIB, high_bytes=23 * GIB + 1),
    free_bytes=20 * GIB,
    uuid="GPU-aaaa",
    used_by_others_bytes=3 * GIB,
    processes=(DeviceProcess(pid=7, name="x\x1b[2J", used_bytes=None),),
)
UNREAD = Device(
    index=1,
    name="Made Card",
    source=DeviceSource.NVML,
    total_bytes=None,
    engine_total_bytes=None,
    free_bytes=None,
    uuid="GPU-bbbb",
    notes=("memory: not supported",),
)


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = DeviceReading(devices=(CARD, UNREAD), driver_version="570.1", nvml_version=None, cuda_version="12.8")
    monkeypatch.setattr(devices_module, "read_devices", lambda: reading)
    monkeypatch.setattr(nvml, "read_devices", lambda: reading)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("two_cards")
def test_devices_in_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert main(["devices"]) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "hidden Made Card 24.00 GiB 23.00 GiB 20.00 GiB" in rows
    assert "0 Made Card unknown unknown unknown" in rows
    assert "memory: not supported" in rows
    assert "process 7 (x\\x1b[2J) holds unknown" in rows


@pytest.mark.usefixtures("two_cards")
def test_devices_as_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "specplan.devices/1"
    first, second = document["devices"]
    assert (first["total_bytes"], first["visible"], second["total_bytes"]) == (24 * GIB, True, None)


@pytest.mark.usefixtures("two_cards")
def test_live_devices_are_planned_for(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model_folder: Callable[[str, Mapping[str, Any]], Path],
    llama_1b: Mapping[str, Any],
) -> None:
    model_folder("small", llama_1b)
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "./small", "--draft", "none", "--devices", "0", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [device["uuid"] for device in document["devices"]] == ["GPU-aaaa"]
    # An unread card beside it: no answer, never a yes.
    assert main(["fit", "./small", "--draft", "none", "--devices", "1", "--quiet"]) == 4
    assert capsys.readouterr().out.startswith("CANNOT TELL")


def options(**given: object) -> PlanOptions:
    every: dict[str, Any] = dict.fromkeys(PlanOptions.__slots__)
    return PlanOptions(**{**every, "pp": 1, **given})


def test_of_several_mig_instances_only_the_first_is_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    instances = tuple(
        Device(
            index=0,
            name=f"Made Card MIG {number}",
            source=DeviceSource.NVML,
            total_bytes=10 * GIB,
            engine_total_bytes=None,
            free_bytes=None,
            uuid=f"MIG-{number}",
            mig=True,
        )
        for number in range(2)
    )
    reading = DeviceReading(devices=instances, driver_version=None, nvml_version=None, cuda_version=None)
    monkeypatch.setattr(nvml, "read_devices", lambda: reading)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    output = Output(quiet=True)
    assert [device.uuid for device in choose_devices(options(), output)] == ["MIG-0"]
    assert len(choose_devices(options(devices="MIG-0,MIG-1"), output)) == 2


def test_the_host_is_a_device() -> None:
    (host,) = choose_devices(options(devices="cpu", engine="transformers"), Output(quiet=True))
    assert host.source is DeviceSource.HOST


def test_no_driver_is_exit_6_with_a_way_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_driver() -> object:
        raise NvmlMissingError("no NVIDIA library", subject="NVML", hint="install the driver")

    monkeypatch.setattr(devices_module, "read_devices", no_driver)
    assert main(["devices"]) == 6
    monkeypatch.setattr(nvml, "read_devices", no_driver)
    assert main(["fit", "org/name"]) == 6
    assert "--gpu" in capsys.readouterr().err


def test_gpus_lists_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "--quiet"]) == 0
    keys = capsys.readouterr().out.split()
    assert {"h100-80gb", "l4-24gb"} <= set(keys)
    assert main(["gpus", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [gpu["key"] for gpu in document["gpus"]] == keys


def test_gpus_that_hold_a_model(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model_folder: Callable[[str, Mapping[str, Any]], Path],
    llama_8b: Mapping[str, Any],
) -> None:
    model_folder("large", llama_8b)
    monkeypatch.chdir(tmp_path)
    assert main(["gpus", "./large", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    counts = {gpu["key"]: gpu["count"] for gpu in document["gpus"]}
    assert counts["h100-80gb"] == 1
    assert counts["t4-16gb"] in {2, 4, 8}  # 14.96 GiB of weights do not fit into 15 GiB beside anything else
    for key, count in (("h100-80gb", 1), ("t4-16gb", counts["t4-16gb"])):
        assert main(["fit", "./large", "--draft", "none", "--gpu", f"{key}:{count}", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["gpus", "./large", "--batch", "60000", "--quiet"]) == 3
    assert "No declared GPU" in capsys.readouterr().out


def test_models_lists_shows_and_adds(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model_folder: Callable[[str, Mapping[str, Any]], Path],
    llama_8b: Mapping[str, Any],
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    model_folder("mine", llama_8b)
    assert main(["models", "mine"]) == 5
    assert main(["models", "--add", "./mine"]) == 0
    capsys.readouterr()
    assert main(["models", "--quiet"]) == 0
    names = capsys.readouterr().out.split()
    assert "mine" in names
    assert len(names) == len(set(names)) > 1
    assert main(["models", "mine"]) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "Parameters 8,030,261,248" in rows  # Hub parameter count of Llama 3.1 8B
    assert "KV cache 131,072 B per token" in rows  # 32 layers x 8 heads x 128 x 2 x 2 B
    assert main(["models", "mine", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["models"][0]["config"]["hidden_size"] == 4096


def test_schema_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "specplan.report/1"


def test_doctor_needs_nothing_essential(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["doctor", "--offline", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    states = {check["name"]: check["state"] for check in document["checks"]}
    assert states["cache"] == "ok"
    assert states["Hub"] == "ok"  # not asked
    assert set(states.values()) <= {"ok", "missing"}
    told = [check for check in document["checks"] if check["name"].startswith(("trial", "extra"))]
    assert len(told) >= 5
    assert all(check["advice"] for check in told if check["state"] != "ok")


def test_doctor_asks_no_hub_that_is_switched_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    main(["doctor"])
    assert "Hub: not asked (HF_HUB_OFFLINE is set)" in capsys.readouterr().out


def test_doctor_tells_a_cache_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main(["doctor", "--offline"]) == 0
    assert "missing cache:" in capsys.readouterr().out


def test_doctor_says_which_extras_are_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_EXTRAS", (("plot", ("click",), "fit --plot"), ("html", ("click", "none"), "x")))
    main(["doctor", "--offline", "--json", "-"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["extra plot"]["state"] == "ok"
    assert checks["extra html"]["state"] == "missing"
    assert checks["extra html"]["advice"] == "pip install 'specplan[html]'"
    assert checks["extra html"]["text"].startswith("none not installed")


def test_doctor_says_whether_a_trial_can_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each backend is asked whether it can be started; this one needs a package that nobody has."""
    monkeypatch.setitem(BACKENDS, "builtin", replace(BACKENDS["builtin"], needs=("no-such-package",)))
    main(["doctor", "--offline", "--json", "-"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["trial (builtin)"]["state"] == "missing"
    assert "no-such-package" in checks["trial (builtin)"]["text"]
    assert "specplan[trial]" in checks["trial (builtin)"]["advice"]
    assert "--engine-python" in checks["trial (vllm)"]["advice"]
    monkeypatch.setitem(BACKENDS, "builtin", replace(BACKENDS["builtin"], needs=("click",)))
    main(["doctor", "--offline", "--json", "-"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["trial (builtin)"]["state"] == "ok"


def test_a_context_that_no_device_could_serve_is_no_answer_about_devices(
    capsys: pytest.CaptureFixture[str],
    model_folder: Callable[[str, Mapping[str, Any]], Path],
    llama_1b: Mapping[str, Any],
) -> None:
    """The default context of 8,192 tokens is beyond this model's: `fit` said so, `gpus` that none holds it."""
    folder = model_folder("short", {**llama_1b, "max_position_embeddings": 2048, "rope_scaling": None})
    assert main(["gpus", str(folder), "--offline"]) == 2
    assert "exceeds its limit of 2,048" in capsys.readouterr().err
    assert main(["gpus", str(folder), "--offline", "--context", "2048"]) == 0
