"""A stand-in for the Hub on loopback, for the real client to talk to, with faults on demand.

It keeps repos in memory, answers the requests that reading a model takes, and remembers each one. A file may be
``Sparse``: real bytes at its start and zeros up to its size, so that a checkpoint of any size costs nothing.
"""

import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_" + "q" * 34  # the shape of a real token


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparse:
    """A file of ``size`` bytes that starts with ``head`` and is zero from there on."""

    head: bytes
    size: int

    def part(self, start: int, end: int) -> Iterator[bytes]:
        if start < len(self.head):
            yield self.head[start:end]
        left = end - max(start, len(self.head))
        while left > 0:
            yield bytes(min(left, 1 << 16))
            left -= 1 << 16


@dataclass(slots=True, kw_only=True)
class HubRepo:
    """One repo. ``gated`` asks for ``TOKEN`` before it gives files out; ``info`` overrides its description."""

    repo_id: str
    files: Mapping[str, bytes | Sparse]
    gated: bool = False
    branches: tuple[str, ...] = ("main",)
    info: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 0

    @property
    def commit(self) -> str:
        return hashlib.sha1(f"{self.repo_id} {self.generation}".encode(), usedforsecurity=False).hexdigest()

    def file(self, name: str) -> Sparse | None:
        content = self.files.get(name)
        return Sparse(head=content, size=len(content)) if isinstance(content, bytes) else content

    def described(self) -> dict[str, Any]:
        siblings = []
        for name in sorted(self.files):
            file = self.file(name)
            assert file is not None
            digest = hashlib.sha256(file.head).hexdigest()
            row = {"rfilename": name, "size": file.size, "blobId": digest[:40]}
            if name.endswith(".safetensors"):
                row["lfs"] = {"sha256": digest, "size": file.size, "pointerSize": 135}
            siblings.append(row)
        base = {"id": self.repo_id, "sha": self.commit, "gated": self.gated, "siblings": siblings, "tags": []}
        return {**base, **self.info}

    def tree(self) -> list[dict[str, Any]]:
        """As the Hub lists the files of a revision, all folders opened."""
        return [
            {"type": "file", "oid": row["blobId"], "size": row["size"], "path": row["rfilename"]}
            for row in self.described()["siblings"]
        ]


def listing(repos: Iterable[HubRepo], query: str) -> list[dict[str, Any]]:
    """As the Hub lists models: every tag of ``filter``, ``author``, a part of the id, the most downloaded first.

    With ``expand`` a row holds the id and the fields named, as the Hub answers; else no configuration.
    """
    asked = parse_qs(query)
    search, author = asked.get("search", [""])[0].lower(), asked.get("author", [""])[0]
    rows = [
        row
        for row in (repo.described() for repo in repos)
        if search in row["id"].lower()
        and author in {"", row["id"].partition("/")[0]}
        and set(asked.get("filter", ())) <= set(row["tags"])
    ]
    if asked.get("sort") == ["downloads"]:
        rows.sort(key=lambda row: -int(row.get("downloads", 0)))
    fields = {"id", *asked.get("expand", ("tags", "downloads", "gated", "library_name", "pipeline_tag"))}
    shown = [{name: value for name, value in row.items() if name in fields} for row in rows]
    return shown[: int(asked.get("limit", ["1000"])[0])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with an answer; several things may."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    delay_seconds: float = 0.0
    drip_seconds: float = 0.0  #: send a byte at a time, this far apart
    cut_after: int | None = None  #: close the connection after so many bytes of the body
    announced: int | None = None  #: a Content-Length of one's own
    ignore_range: bool = False
    drop: bool = False  #: close the connection without an answer
    reset_after: bytes | None = None  #: send these bytes in place of an answer, and reset the connection
    without: tuple[str, ...] = ()  #: headers that are not sent; without a length the body ends with the connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A request that came in."""

    method: str
    path: str
    range: str | None
    authorization: str | None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # the default of 5 makes a burst of connections wait for a second


class HubServer:
    """The server; use it in a ``with`` block. ``url`` is what HF_ENDPOINT would hold."""

    def __init__(self) -> None:
        self.repos: dict[str, HubRepo] = {}
        self.seen: list[Seen] = []
        self.bytes_sent = 0
        self.elsewhere = ""
        self.stopping = threading.Event()
        self._faults: list[tuple[re.Pattern[str], Fault, list[int]]] = []
        self._lock = threading.Lock()
        server = self

        class Handler(_Handler):
            hub = server

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "HubServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def add(self, repo: HubRepo) -> HubRepo:
        self.repos[repo.repo_id] = repo
        return repo

    def fail(self, path_pattern: str, fault: Fault, *, times: int = 1_000_000, elsewhere: str = "") -> None:
        """Let answers go wrong whose path matches, so many times; ``elsewhere``: what a header may lead to."""
        self.elsewhere = elsewhere
        self._faults.append((re.compile(path_pattern), fault, [times]))

    def heal(self) -> None:
        self._faults.clear()

    def fault_for(self, path: str) -> Fault:
        with self._lock:
            for pattern, fault, left in self._faults:
                if left[0] > 0 and pattern.search(path):
                    left[0] -= 1
                    return fault
        return Fault()

    @contextmanager
    def counted(self) -> Iterator[list[Seen]]:
        """The requests made inside the block."""
        before = len(self.seen)
        requests: list[Seen] = []
        yield requests
        requests.extend(self.seen[before:])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes; they must not wait for each other
    hub: HubServer
    fault: Fault

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep quiet."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        authorization = self.headers.get("Authorization")
        wanted = Seen(
            method=self.command, path=self.path, range=self.headers.get("Range"), authorization=authorization
        )
        self.hub.seen.append(wanted)
        self.fault = self.hub.fault_for(self.path)
        self.hub.stopping.wait(self.fault.delay_seconds)
        if self.fault.drop:
            self.close_connection = True
        elif self.fault.reset_after is not None:
            self.close_connection = True
            self.wfile.write(self.fault.reset_after)
            # Closed with this option a connection is reset, not ended.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif self.fault.status is not None:
            body = b"{}" if self.fault.body is None else self.fault.body
            self._send(self.fault.status, {}, Sparse(head=body, size=len(body)), 0, len(body))
        else:
            self._answer(unquote(urlsplit(self.path).path), authorization)

    def _answer(self, path: str, authorization: str | None) -> None:
        if path == "/api/models":
            body = json.dumps(listing(self.hub.repos.values(), urlsplit(self.path).query)).encode()
            self._send(200, {"Content-Type": "application/json"}, Sparse(head=body, size=len(body)), 0, len(body))
            return
        described = re.fullmatch(r"/api/models/([^/]+/[^/]+|[^/]+)/revision/(.+)", path)
        resolved = re.fullmatch(r"/([^/]+/[^/]+|[^/]+)/resolve/([^/]+)/(.+)", path)
        treed = re.fullmatch(r"/api/models/([^/]+/[^/]+|[^/]+)/tree/([^/]+)", path)
        match = described or resolved or treed
        repo = None if match is None else self.hub.repos.get(match[1])
        if match is None or repo is None:
            known = authorization == f"Bearer {TOKEN}"
            self._refuse(404 if known else 401, "RepoNotFound" if known else "")
        elif match[2] not in {*repo.branches, repo.commit}:
            self._refuse(404, "RevisionNotFound")
        elif described:
            body = json.dumps(repo.described()).encode()
            self._send(200, {"Content-Type": "application/json"}, Sparse(head=body, size=len(body)), 0, len(body))
        elif treed:
            body = json.dumps(repo.tree()).encode()
            self._send(200, {"Content-Type": "application/json"}, Sparse(head=body, size=len(body)), 0, len(body))
        elif repo.gated and authorization != f"Bearer {TOKEN}":
            self._refuse(403 if authorization else 401, "GatedRepo")
        else:
            self._send_file(repo, match[3])

    def _send_file(self, repo: HubRepo, name: str) -> None:
        file = repo.file(name)
        if file is None:
            self._refuse(404, "EntryNotFound")
            return
        digest = hashlib.sha256(file.head).hexdigest()
        headers = {"X-Repo-Commit": repo.commit, "ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if span is None or self.fault.ignore_range:
            self._send(200, headers, file, 0, file.size)
            return
        start, end = int(span[1]), min(int(span[2]) + 1, file.size)
        if start >= file.size:
            self._refuse(416, "")
            return
        self._send(206, {**headers, "Content-Range": f"bytes {start}-{end - 1}/{file.size}"}, file, start, end)

    def _refuse(self, status: int, code: str) -> None:
        body = json.dumps({"error": "refused"}).encode()
        headers = {"Content-Type": "application/json", **({"X-Error-Code": code} if code else {})}
        self._send(status, headers, Sparse(head=body, size=len(body)), 0, len(body))

    def _send(self, status: int, headers: Mapping[str, str], file: Sparse, start: int, end: int) -> None:
        length = end - start if self.fault.announced is None else self.fault.announced
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length), **self.fault.headers}.items():
            if name not in self.fault.without:
                place = value.replace("{elsewhere}", self.hub.elsewhere).replace("{path}", self.path)
                self.send_header(name, place)
        if "Content-Length" in self.fault.without:
            self.send_header("Connection", "close")
        try:
            self.end_headers()
            if self.command != "HEAD":
                self._send_body(file, start, end)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _send_body(self, file: Sparse, start: int, end: int) -> None:
        if self.fault.cut_after is not None:
            end = min(end, start + self.fault.cut_after)
            self.close_connection = True
        for part in file.part(start, end):
            pieces = (part[i : i + 1] for i in range(len(part))) if self.fault.drip_seconds else (part,)
            for piece in pieces:
                if self.hub.stopping.is_set():
                    return
                self.wfile.write(piece)
                self.hub.bytes_sent += len(piece)
                time.sleep(self.fault.drip_seconds)
