"""Faults of the Hub, of the network, and of what a repository holds: what is injected, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hub_server import TOKEN, Sparse
from hub_server import Fault as ServerFault
from made_repos import llama_tensors, safetensors, sharded_repo, weight_map_of, with_index

from injected.record import Fault

NO_CONNECTION = "http://127.0.0.1:9"  # discard: nothing listens there
Files = Mapping[str, bytes | Sparse]


@dataclass(frozen=True, kw_only=True)
class HubCase(Fault):
    """One reading of ``org/tiny`` from a Hub of its own."""

    target: str = "org/tiny"
    files: Files = field(default_factory=lambda: sharded_repo(shards=3))
    gated: bool = False
    faults: Mapping[str, ServerFault] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    warm: bool = False  #: read once before the faults begin
    options: tuple[str, ...] = ()


def _with_header_beyond_the_cap() -> Files:
    huge = Sparse(head=(200 * 2**20).to_bytes(8, "little") + b"{", size=300 * 2**20)
    return {**sharded_repo(shards=3), "model-00001-of-00003.safetensors": huge}


def _with_a_way_out() -> Files:
    files = sharded_repo(shards=3)
    return with_index(files, {**weight_map_of(files), "lm_head.weight": "../x"}, 1)


_ADAPTER: Files = {"adapter_config.json": b"{}", "adapter_model.safetensors": safetensors(llama_tensors())}
HUB_CASES = [
    HubCase(
        id="no-such-repo",
        what="no such repository, and no token",
        target="org/none",
        exit_code=5,
        code="model_not_found",
        says="private or gated",
    ),
    HubCase(
        id="no-such-repo-for-this-token",
        what="no such repository, with a token",
        target="org/none",
        environment={"HF_TOKEN": TOKEN},
        exit_code=5,
        code="model_not_found",
        says="the token may not see it",
    ),
    HubCase(
        id="no-such-revision",
        what="no such revision of a repository that is there",
        target="org/tiny@gone",
        exit_code=5,
        code="model_not_found",
        says="tag or commit",
    ),
    HubCase(
        id="gated-401",
        what="a gated repository, and no token",
        gated=True,
        exit_code=5,
        code="model_gated",
        says="hf auth login",
    ),
    HubCase(
        id="gated-403",
        what="a gated repository, with a token that was not granted access",
        gated=True,
        environment={"HF_TOKEN": "hf_" + "z" * 34},
        exit_code=5,
        code="model_gated",
        says="has not been granted",
    ),
    HubCase(
        id="gated-and-granted",
        what="a gated repository, with a token that was",
        gated=True,
        environment={"HF_TOKEN": TOKEN},
        exit_code=0,
        code=None,
    ),
    HubCase(
        id="no-network",
        what="nothing listens where the Hub should be",
        environment={"HF_ENDPOINT": NO_CONNECTION},
        exit_code=8,
        code="hub_unreachable",
        says="cannot be reached",
    ),
    HubCase(
        id="no-network-but-built-in",
        what="the same, for a model of the built-in catalogue",
        target="Qwen/Qwen3-0.6B",
        environment={"HF_ENDPOINT": NO_CONNECTION},
        exit_code=0,
        code=None,
        says="warning: Qwen/Qwen3-0.6B",
    ),
    HubCase(
        id="no-network-near-name",
        what="the same, for a name that is nearly one of the catalogue",
        target="Qwen/Qwen3-0.7B",
        environment={"HF_ENDPOINT": NO_CONNECTION},
        exit_code=8,
        code="hub_unreachable",
        says="did you mean Qwen/Qwen3-",
    ),
    HubCase(
        id="near-name",
        what="a name that is nearly one of the catalogue, and not on the Hub",
        target="Qwen/Qwen33-32B",
        exit_code=5,
        code="model_not_found",
        says="Qwen/Qwen3-32B",
    ),
    HubCase(
        id="dropped-with-cache",
        what="the Hub drops every connection; the model was read before",
        warm=True,
        faults={"/": ServerFault(drop=True)},
        exit_code=0,
        code=None,
    ),
    HubCase(
        id="offline-with-cache",
        what="no network wanted; the model was read before",
        warm=True,
        options=("--offline",),
        exit_code=0,
        code=None,
        says="specplan's own cache",
    ),
    HubCase(
        id="offline-without-cache",
        what="no network wanted; the model was never read",
        options=("--offline",),
        exit_code=8,
        code="hub_unreachable",
        says="offline",
    ),
    HubCase(
        id="429",
        what="the Hub answers 429",
        faults={"/": ServerFault(status=429)},
        exit_code=8,
        code="hub_rate_limited",
        says="hf auth login",
    ),
    HubCase(
        id="429-for-an-hour",
        what="the Hub answers 429 and asks for an hour of patience",
        faults={"/": ServerFault(status=429, headers={"Retry-After": "3600"})},
        exit_code=8,
        code="hub_rate_limited",
        says="3600 s",
    ),
    HubCase(
        id="500",
        what="the Hub answers 500",
        faults={"/": ServerFault(status=500)},
        exit_code=8,
        code="hub_server",
        says="answered 500",
    ),
    HubCase(
        id="503",
        what="the Hub answers 503 for one file",
        faults={"config": ServerFault(status=503)},
        exit_code=8,
        code="hub_server",
        says="answered 503",
    ),
    HubCase(
        id="too-slow",
        what="the Hub answers after 30 s, where one is allowed",
        faults={"/": ServerFault(delay_seconds=30)},
        environment={"HF_HUB_DOWNLOAD_TIMEOUT": "1"},
        exit_code=8,
        code="hub_timeout",
        says="too slowly",
    ),
    HubCase(
        id="dropped",
        what="the Hub drops every connection",
        faults={"/": ServerFault(drop=True)},
        exit_code=8,
        code="hub_server",
        says="breaks off",
    ),
    HubCase(
        id="truncated-config",
        what="the body of config.json breaks off",
        faults={"config.json": ServerFault(cut_after=20)},
        exit_code=8,
        code="hub_server",
        says="config.json: its body breaks off",
    ),
    HubCase(
        id="login-page",
        what="a login page in place of the Hub's answer",
        faults={"/api": ServerFault(status=200, body=b"<html>log in</html>")},
        exit_code=8,
        code="hub_server",
        says="not the Hub's description",
    ),
    HubCase(
        id="range-ignored",
        what="a server that sends whole files where a range was asked for",
        faults={"safetensors$": ServerFault(ignore_range=True)},
        exit_code=0,
        code=None,
    ),
    HubCase(
        id="header-beyond-the-cap",
        what="a safetensors header of 200 MiB",
        files=_with_header_beyond_the_cap(),
        exit_code=5,
        code="weights",
        says="209715200",
    ),
    HubCase(
        id="index-names-a-way-out",
        what="a weight index that names a file outside the repository",
        files=_with_a_way_out(),
        exit_code=5,
        code="weights",
        says="'../x'",
    ),
    HubCase(
        id="config-broken",
        what="config.json is not JSON",
        files={"config.json": b'{"a":'},
        exit_code=5,
        code="config",
        says="is not JSON",
    ),
    HubCase(
        id="config-a-list",
        what="config.json is a list",
        files={"config.json": b"[]"},
        exit_code=5,
        code="config",
        says="not a JSON object",
    ),
    HubCase(
        id="gguf-only",
        what="a repository of GGUF files alone",
        files={"a.gguf": b"GGUF"},
        exit_code=5,
        code="not_a_model",
        says="GGUF",
    ),
    HubCase(
        id="adapter",
        what="a repository that holds an adapter",
        files=_ADAPTER,
        exit_code=5,
        code="not_a_model",
        says="adapter",
    ),
]
