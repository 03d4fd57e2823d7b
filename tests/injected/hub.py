"""Faults of the Hub, of the network, and of what a repository holds: what is injected, and what comes of it."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
    downloaded: bool = False  #: the Hub's own client has filled its cache before
    spoil: Callable[[Path], None] | None = None  #: what is done to the user's home folder then
    elsewhere: bool = False  #: a second server of the same repo, which ``{elsewhere}`` in a header names
    patience_seconds: float | None = None  #: for one repo, where not the usual
    options: tuple[str, ...] = ()


def _with_header_beyond_the_cap() -> Files:
    huge = Sparse(head=(200 * 2**20).to_bytes(8, "little") + b"{", size=300 * 2**20)
    return {**sharded_repo(shards=3), "model-00001-of-00003.safetensors": huge}


def _with_a_way_out() -> Files:
    files = sharded_repo(shards=3)
    return with_index(files, {**weight_map_of(files), "lm_head.weight": "../x"}, 1)


def _files(home: Path, pattern: str) -> list[Path]:
    found = [path for path in (home / ".cache").rglob(pattern) if path.is_file()]
    assert found, f"nothing to spoil: {pattern}"
    return found


def _cut_cached(name: str) -> Callable[[Path], None]:
    def cut(home: Path) -> None:
        for path in _files(home, name):
            blob = path.resolve()
            blob.write_bytes(blob.read_bytes()[:-7])

    return cut


def _dangle(name: str) -> Callable[[Path], None]:
    def dangle(home: Path) -> None:
        for path in _files(home, name):
            path.resolve().unlink()

    return dangle


def _spoil_store(content: bytes) -> Callable[[Path], None]:
    def spoil(home: Path) -> None:
        for path in _files(home, "specplan/**/*.json"):
            path.write_bytes(content)

    return spoil


def _no_cache_folder(home: Path) -> None:
    """A file in its place, for root may write wherever no permission allows it."""
    home.mkdir(parents=True, exist_ok=True)
    (home / ".cache").write_text("no folder")


def _bomb() -> bytes:
    """A gibibyte of zeros, packed a thousandfold; after a full flush the same bytes say the same again."""
    packer = zlib.compressobj(9, wbits=31)
    first, again = (packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + again * 1023


_GZIP = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
_ADAPTER: Files = {"adapter_config.json": b"{}", "adapter_model.safetensors": safetensors(llama_tensors())}
#: status: (error code, exit code, words) without the Hub's own headers, as a proxy would answer.
_BARE: Mapping[int, tuple[str, int, str]] = {
    401: ("model_not_found", 5, "without a token the Hub does not say which"),
    403: ("model_gated", 5, "access is refused (403)"),
    404: ("model_not_found", 5, "the Hub has no"),
    410: ("model_not_found", 5, "no longer has"),
    418: ("hub_server", 8, "answered 418"),
    451: ("hub_server", 8, "answered 451"),
    502: ("hub_server", 8, "answered 502"),
    504: ("hub_timeout", 8, "too slowly"),
}
HUB_CASES = [
    *(
        HubCase(
            id=f"{status}-bare",
            what=f"an answer {status} without a header that says why",
            faults={"/": ServerFault(status=status, body=b"")},
            exit_code=exit_code,
            code=code,
            says=says,
        )
        for status, (code, exit_code, says) in _BARE.items()
    ),
    HubCase(
        id="429-odd-wait",
        what="the Hub answers 429 and asks to wait for what is no time",
        faults={"/": ServerFault(status=429, headers={"Retry-After": "soon\u00b2"})},
        exit_code=8,
        code="hub_rate_limited",
    ),
    HubCase(
        id="reset-in-headers",
        what="the connection is reset in the midst of the answer's headers",
        faults={"/": ServerFault(reset_after=b"HTTP/1.1 200 OK\r\nContent-Ty")},
        exit_code=8,
        code="hub_server",
        says="breaks off",
    ),
    HubCase(
        id="no-http",
        what="something that is no HTTP answers",
        faults={"/": ServerFault(reset_after=b"SSH-2.0-OpenSSH_9.9\r\n")},
        exit_code=8,
        code="hub_server",
    ),
    HubCase(
        id="drips",
        what="the Hub sends a byte at a time, for ever",
        faults={"/": ServerFault(drip_seconds=0.05)},
        patience_seconds=2.0,
        exit_code=8,
        code="hub_timeout",
        says="within 2 s in all",
    ),
    HubCase(
        id="drips-header",
        what="the Hub sends the weights' headers a byte at a time; there is an index",
        faults={"safetensors$": ServerFault(drip_seconds=0.05)},
        patience_seconds=2.0,
        exit_code=0,
        code=None,
        says="weight headers could not be read",
    ),
    HubCase(
        id="bomb",
        what="a gzip bomb of a gibibyte in place of the Hub's answer",
        faults={"/api": ServerFault(status=200, headers=_GZIP, body=_bomb())},
        exit_code=8,
        code="hub_server",
        says="content encoding 'gzip'",
    ),
    HubCase(
        id="bomb-error",
        what="a gzip bomb of a gibibyte in place of an error's text",
        faults={"/api": ServerFault(status=500, headers=_GZIP, body=_bomb())},
        exit_code=8,
        code="hub_server",
        says="answered 500",
    ),
    HubCase(
        id="no-length",
        what="no answer says how long it is",
        faults={"/": ServerFault(without=("Content-Length",))},
        exit_code=0,
        code=None,
    ),
    HubCase(
        id="no-commit",
        what="no answer says of which commit and which content it is",
        faults={"/": ServerFault(without=("X-Repo-Commit", "ETag", "Accept-Ranges"))},
        exit_code=0,
        code=None,
    ),
    HubCase(
        id="no-length-cut",
        what="an answer that does not say how long it is breaks off",
        faults={"config.json": ServerFault(without=("Content-Length",), cut_after=40)},
        exit_code=8,
        code="hub_server",
        says="40 bytes came, but the repo's list says",
    ),
    HubCase(
        id="endless-headers",
        what="headers without end",
        faults={"/": ServerFault(headers={"X-Long": "x" * 1_000_000})},
        exit_code=8,
        code="hub_server",
    ),
    HubCase(
        id="redirect-of-weights",
        what="files lie on another host: they are read there, and the token stays here",
        gated=True,
        environment={"HF_TOKEN": TOKEN},
        elsewhere=True,
        faults={"safetensors$": ServerFault(status=302, headers={"Location": "{elsewhere}{path}"})},
        exit_code=0,
        code=None,
    ),
    HubCase(
        id="redirect-of-the-api",
        what="the Hub's address leads to another host: the token stays here",
        environment={"HF_TOKEN": TOKEN},
        elsewhere=True,
        faults={"/": ServerFault(status=307, headers={"Location": "{elsewhere}{path}"})},
        exit_code=0,
        code=None,
    ),
    HubCase(
        id="redirect-for-ever",
        what="an address that leads to itself",
        environment={"HF_TOKEN": TOKEN},
        faults={"/": ServerFault(status=302, headers={"Location": "{path}"})},
        exit_code=8,
        code="hub_server",
    ),
    HubCase(
        id="redirect-to-a-file",
        what="an address that leads to a file of this machine",
        environment={"HF_TOKEN": TOKEN},
        faults={"/": ServerFault(status=302, headers={"Location": "file:///etc/passwd"})},
        exit_code=8,
        code="hub_unreachable",
        says="not usable",
    ),
    HubCase(
        id="token-echoed",
        what="an error that repeats the token",
        environment={"HF_TOKEN": TOKEN},
        faults={"/": ServerFault(status=500, headers={"X-Error-Message": f"bad {TOKEN}"}, body=TOKEN.encode())},
        exit_code=8,
        code="hub_server",
    ),
    HubCase(
        id="cache-config-cut",
        what="the Hub's cache holds half of config.json; no network wanted",
        downloaded=True,
        spoil=_cut_cached("config.json"),
        options=("--offline",),
        exit_code=5,
        code="config",
        says="config.json",
    ),
    HubCase(
        id="cache-weights-cut",
        what="the Hub's cache holds a weight file that is too short; no network wanted",
        downloaded=True,
        spoil=_cut_cached("*.safetensors"),
        options=("--offline",),
        exit_code=5,
        code="weights",
        says="bytes long, but its header describes",
    ),
    HubCase(
        id="cache-config-dangles",
        what="config.json in the Hub's cache is a link to nothing; no network wanted",
        downloaded=True,
        spoil=_dangle("config.json"),
        options=("--offline",),
        exit_code=8,
        code="hub_unreachable",
        says="nothing about it is on disk",
    ),
    HubCase(
        id="cache-weights-dangle",
        what="the weight files in the Hub's cache are links to nothing; no network wanted",
        downloaded=True,
        spoil=_dangle("*.safetensors"),
        options=("--offline",),
        exit_code=0,
        code=None,
        says="weight files are not on disk",
    ),
    HubCase(
        id="store-cut",
        what="specplan's own cache is cut; the Hub answers",
        warm=True,
        spoil=_spoil_store(b'{"schema": "spec'),
        exit_code=0,
        code=None,
    ),
    HubCase(
        id="store-cut-offline",
        what="specplan's own cache is cut; no network wanted",
        warm=True,
        spoil=_spoil_store(b'{"schema": "spec'),
        options=("--offline",),
        exit_code=8,
        code="hub_unreachable",
        says="nothing about it is on disk",
    ),
    HubCase(
        id="store-other",
        what="specplan's own cache holds what is no snapshot; no network wanted",
        warm=True,
        spoil=_spoil_store(b"[" * 100_000),
        options=("--offline",),
        exit_code=8,
        code="hub_unreachable",
        says="nothing about it is on disk",
    ),
    HubCase(
        id="cache-read-only",
        what="nothing can be written where caches belong",
        spoil=_no_cache_folder,
        exit_code=0,
        code=None,
        says="could not be written",
    ),
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
