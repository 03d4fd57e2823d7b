"""Where `fit` gets a model from: the real client against a stand-in Hub on loopback, in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hub_server import HubRepo, HubServer
from made_repos import TINY_LLAMA_PARAMETERS, single_file_repo

NO_CONNECTION = "http://127.0.0.1:9"  # discard: nothing listens there
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as running:
        running.add(HubRepo(repo_id="org/tiny", files=single_file_repo()))
        running.add(HubRepo(repo_id="org/gated", files=single_file_repo(), gated=True))
        running.add(HubRepo(repo_id="org/empty", files={"README.md": b""}))
        yield running


@pytest.fixture
def fit(clean_environment: Mapping[str, str], tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Plan a target against a Hub; exit code, document and stderr."""

    def run(target: str, endpoint: str, *options: str) -> tuple[int, dict[str, Any], str]:
        environment = {
            **clean_environment,
            "HF_ENDPOINT": endpoint,
            "HF_HUB_OFFLINE": "0",
            "PYTHONPATH": str(ROOT),
        }
        arguments = [
            "fit",
            target,
            "--gpu",
            "h100-80gb",
            "--draft",
            "none",
            "--context",
            "64",
            "--json",
            "-",
            *options,
        ]
        done = subprocess.run(
            [sys.executable, "-m", "planner.cli.main", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, json.loads(done.stdout), done.stderr

    return run


Fit = Callable[..., tuple[int, dict[str, Any], str]]


def test_the_hub_then_our_store(server: HubServer, fit: Fit) -> None:
    code, document, _ = fit("org/tiny", server.url)
    assert (code, document["target"]["source"]) == (0, "hub")
    assert document["target"]["parameters"] == TINY_LLAMA_PARAMETERS
    assert document["target"]["revision"] == server.repos["org/tiny"].commit
    assert {item["basis"] for item in document["memory"]["per_rank"][0]["items"][:3]} == {"exact"}
    asked = len(server.seen)
    for options in ([], ["--offline"]):
        code, again, _ = fit("org/tiny", server.url, *options)
        assert (code, again["target"]["source"]) == (0, "cache")
        assert again["target"]["parameters"] == TINY_LLAMA_PARAMETERS
    assert len(server.seen) == asked


@pytest.mark.parametrize(
    ("target", "exit_code", "code"),
    [("org/missing", 5, "model_not_found"), ("org/gated", 5, "model_gated"), ("org/empty", 5, "not_a_model")],
)
def test_models_that_cannot_be_read(server: HubServer, fit: Fit, target: str, exit_code: int, code: str) -> None:
    got, document, err = fit(target, server.url)
    assert (got, document["error"]["code"]) == (exit_code, code)
    assert err.startswith(f"error: {target}")


def test_without_a_connection_the_catalogue_answers_with_a_warning(fit: Fit) -> None:
    code, document, err = fit("Qwen/Qwen3-8B", NO_CONNECTION)
    assert (code, document["target"]["source"]) == (0, "catalogue")
    assert "catalogue_used" in [warning["code"] for warning in document["warnings"]]
    assert "warning: Qwen/Qwen3-8B" in err
    assert document["target"]["parameters"] == 8_190_735_360  # Hub parameter count of Qwen/Qwen3-8B


def test_a_short_name_is_the_catalogues(fit: Fit) -> None:
    code, document, err = fit("qwen3-8b", NO_CONNECTION, "--offline")
    assert (code, document["target"]["repo_id"]) == (0, "Qwen/Qwen3-8B")
    assert "warning" not in err


def test_the_catalogue_does_not_answer_for_a_revision(fit: Fit) -> None:
    code, document, _ = fit("Qwen/Qwen3-8B@v1", NO_CONNECTION, "--offline")
    assert (code, document["error"]["code"]) == (8, "hub_unreachable")
    assert "knows no revisions: plan Qwen/Qwen3-8B." in document["error"]["hint"]


def test_without_a_connection_an_unknown_model_is_a_network_error(fit: Fit) -> None:
    code, document, _ = fit("org/unknown", NO_CONNECTION)
    assert (code, document["error"]["code"]) == (8, "hub_unreachable")
