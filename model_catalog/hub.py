"""Models on the Hugging Face Hub and in its cache on disk, read into ModelSnapshots.

The only importer of huggingface_hub. The client owns the session (proxies, certificates, offline mode), the token,
the addresses and the judging of answers; this module reads bodies itself, as streams, so that every read has a
cap and a deadline even where a server ignores the range asked for.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from huggingface_hub import constants, get_session, hf_hub_url, hf_raise_for_status

# The client documents these under this name but does not mark them as exported for type checkers.
from huggingface_hub.utils import build_hf_headers, validate_repo_id  # type: ignore[attr-defined]

from model_catalog.errors import (
    ConfigError,
    HubServerError,
    HubTimeoutError,
    HubUnreachableError,
    NetworkError,
)
from model_catalog.hub_answers import DESCRIPTION_LIMIT_BYTES, RepoDescription, Wanted, read_description
from model_catalog.hub_cache import cached_commit, newest_snapshot
from model_catalog.hub_errors import (
    OFFLINE_HINT,
    BodyBreaksOffError,
    HubCall,
    ascii_only,
    asked_to_wait,
    may_pass,
    redact,
    translate,
)
from model_catalog.hub_listing import LISTING_LIMIT_BYTES, ListedModel, ModelQuery, read_listing
from model_catalog.local_folder import FolderFiles, load_folder
from model_catalog.repo_reader import Origin, Progress, read_snapshot
from model_catalog.snapshot import ModelSnapshot, RepoFile, RepoRef, SnapshotSource, WeightsKnownFrom, is_commit
from model_catalog.snapshot_store import SnapshotStore

DEFAULT_REVISION: Final = "main"
#: Of an error's body; its headers that the client's judge looks at.
ERROR_LIMIT_BYTES: Final = 65_536
ERROR_HEADERS: Final = (
    "X-Error-Code",
    "X-Error-Message",
    "X-Request-Id",
    "Content-Type",
    "Retry-After",
    "RateLimit",
)

# The client reports retries and server notices on stderr, where only our own notes belong.
logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubLimits:
    """How long and how hard the Hub is asked."""

    deadline_seconds: float = 120.0  #: the whole read of one repo
    request_seconds: float = 10.0  #: without any byte arriving
    attempts: int = 3  #: per request, for faults that may pass
    pause_seconds: float = 0.5  #: before the second attempt; doubles
    longest_wait_seconds: float = 10.0  #: that a Retry-After may ask for and get
    threads: int = 32
    branch_age_seconds: float = 3600.0  #: how long "this branch is at that commit" is believed


#: The client's own setting (HF_HUB_DOWNLOAD_TIMEOUT, 10 s unless set) says how long to wait for a byte.
DEFAULT_LIMITS: Final = HubLimits(request_seconds=float(constants.HF_HUB_DOWNLOAD_TIMEOUT))


def load_snapshot(
    ref: RepoRef,
    *,
    offline: bool = False,
    progress: Progress | None = None,
    endpoint: str | None = None,
    limits: HubLimits = DEFAULT_LIMITS,
    store: SnapshotStore | None = None,
    hub_cache: Path | None = None,
) -> ModelSnapshot:
    """All that planning needs of a model, with the fewest requests.

    The order: a local folder; our store, for a commit hash or for a branch asked about less than
    ``limits.branch_age_seconds`` ago (no request); the Hub (one request where the store holds the branch's
    present commit, else also config, index and one header a file); and, offline or where the Hub cannot be asked,
    our store at any age, then the Hub's cache on disk, with a note saying so. Where a network fault hides headers
    but configuration and index are at hand, the index's total serves, with a note, and nothing is stored.
    ``progress(done, total)`` counts headers. ``endpoint`` is HF_ENDPOINT by default.

    Raises:
        ModelError: the branch of it that says what is wrong with the repo or its files.
        NetworkError: the Hub cannot be asked and nothing is on disk.
    """
    cache = Path(constants.HF_HUB_CACHE) if hub_cache is None else hub_cache
    if ref.folder is not None:
        return load_folder(ref.folder, repo_id=ref.repo_id, trusted_roots=(cache,), progress=progress)
    store = SnapshotStore() if store is None else store
    site = (endpoint or constants.ENDPOINT).rstrip("/")
    revision = ref.revision or DEFAULT_REVISION
    known = _from_store(store, ref, revision, site, limits.branch_age_seconds)
    if known is not None:
        return known
    if offline or constants.HF_HUB_OFFLINE:
        return _from_disk(ref, revision, site, store, cache, "offline", None)
    client = _HubClient(ref, revision, site, limits)
    try:
        return _from_hub(client, ref, revision, store, progress)
    except NetworkError as error:
        return _from_disk(
            ref, revision, site, store, cache, f"the Hub could not be asked ({error.message})", error
        )


def list_models(
    query: ModelQuery,
    *,
    asked_for: str,
    endpoint: str | None = None,
    limits: HubLimits = DEFAULT_LIMITS,
) -> tuple[ListedModel, ...]:
    """The Hub's answer to one question about its models, in one request and without a second page.

    It asks the client's own listing address over the client's session, but reads it here: the client's
    ``list_models`` has no time-out and repeats a failed request five times. ``asked_for`` is the repo in messages.

    Raises:
        SpecplanError: the Hub cannot be asked, or its answer is not a listing.
    """
    site = (endpoint or constants.ENDPOINT).rstrip("/")
    ref = RepoRef(repo_id=asked_for)
    if constants.HF_HUB_OFFLINE:
        raise HubUnreachableError("HF_HUB_OFFLINE is set", subject=str(ref), hint="unset HF_HUB_OFFLINE")
    return _HubClient(ref, DEFAULT_REVISION, site, limits).listing(query)


def read_file(
    snapshot: ModelSnapshot, path: str, *, limit_bytes: int, limits: HubLimits, endpoint: str | None = None
) -> bytes:
    """One file of a snapshot's commit, in one request. Raises the SpecplanError that says why it cannot be had."""
    ref, site = RepoRef(repo_id=snapshot.repo_id), (endpoint or constants.ENDPOINT).rstrip("/")
    client = _HubClient(ref, snapshot.commit or DEFAULT_REVISION, site, limits)
    client.files = snapshot.files
    return client.read(path, limit_bytes=limit_bytes)


def _from_store(
    store: SnapshotStore, ref: RepoRef, revision: str, site: str, oldest_seconds: float
) -> ModelSnapshot | None:
    commit: str | None = revision
    if not is_commit(revision):
        known = store.known_commit(ref.repo_id, revision, site)
        commit = known.commit if known is not None and known.age_seconds <= oldest_seconds else None
    found = None if commit is None else store.get(ref.repo_id, commit)
    return None if found is None else replace(found, revision=revision, source=SnapshotSource.CACHE)


def _from_hub(
    client: "_HubClient", ref: RepoRef, revision: str, store: SnapshotStore, progress: Progress | None
) -> ModelSnapshot:
    info = client.describe()
    if not is_commit(revision):
        store.remember_commit(ref.repo_id, revision, client.site, info.commit)
    held = store.get(ref.repo_id, info.commit)
    if held is not None:
        return replace(held, revision=revision)
    origin = Origin(
        repo_id=ref.repo_id,
        revision=revision,
        commit=info.commit,
        source=SnapshotSource.HUB,
        threads=client.limits.threads,
        published_parameters=info.parameters,
        tokenizer=info.tokenizer,
    )
    snapshot = read_snapshot(client, origin, progress)
    if snapshot.weights_from is WeightsKnownFrom.INDEX:
        return snapshot  # a network fault hid the headers: the next run asks again
    note = store.put(snapshot)
    return snapshot if note is None else replace(snapshot, notes=(*snapshot.notes, note))


def _from_disk(
    ref: RepoRef,
    revision: str,
    site: str,
    store: SnapshotStore,
    cache: Path,
    why: str,
    error: NetworkError | None,
) -> ModelSnapshot:
    """Our store at any age, else the Hub's cache; the error, or one that says "offline", where neither has it."""
    found = _from_store(store, ref, revision, site, float("inf"))
    where = "specplan's own cache"
    if found is None:
        found, where = _from_hub_cache(ref, revision, cache), "the Hub's cache on disk"
    if found is not None:
        return replace(
            found, notes=(*found.notes, f"{why}: read from {where}, and the Hub may have a newer commit")
        )
    if error is not None:
        raise error
    raise HubUnreachableError(
        "offline, and nothing about it is on disk",
        subject=str(ref),
        hint="leave --offline out (and unset HF_HUB_OFFLINE); or give a local folder, or a built-in name",
    )


def _from_hub_cache(ref: RepoRef, revision: str, cache: Path) -> ModelSnapshot | None:
    """The model in ``<cache>/models--org--name/snapshots/<commit>``, as far as it was downloaded."""
    base = cache / "--".join(("models", *ref.repo_id.split("/")))
    commit = revision if is_commit(revision) else cached_commit(base, revision)
    notes: tuple[str, ...] = ()
    if not commit and ref.revision is None:
        commit = newest_snapshot(base / "snapshots")
        notes = ("the Hub's cache does not say at which commit main is: the newest one on disk was taken",)
    folder = base / "snapshots" / commit
    if not is_commit(commit) or not (folder / "config.json").is_file():
        return None
    files = FolderFiles(folder, subject=str(folder), trusted_roots=(cache,))
    files.files = tuple(file for file in files.files if file.size_bytes is not None)
    origin = Origin(
        repo_id=ref.repo_id,
        revision=revision,
        commit=commit,
        source=SnapshotSource.CACHE,
        complete=False,
        notes=notes,
    )
    return read_snapshot(files, origin)


def _client_headers() -> dict[str, str]:
    """The client's own, with its token; without one where the token's file cannot be read."""
    try:
        return build_hf_headers(library_name="specplan")
    except OSError:
        return build_hf_headers(library_name="specplan", token=False)


class _HubClient:
    """``RepoFiles`` of a Hub repo: the real client's session, token and addresses; our caps and deadline."""

    def __init__(self, ref: RepoRef, revision: str, site: str, limits: HubLimits) -> None:
        self.site = site
        self.limits = limits
        self.files: Sequence[RepoFile] = ()
        self._repo_id = ref.repo_id
        self._revision = revision
        self._commit = revision
        self._deadline = time.monotonic() + limits.deadline_seconds
        self._headers = {**_client_headers(), "Accept-Encoding": "identity"}
        token = self._headers.get("authorization", "").removeprefix("Bearer ") or None
        self._call = HubCall(repo_id=ref.repo_id, revision=revision, token=token, site=site)

    @property
    def subject(self) -> str:
        return self._call.subject

    def describe(self) -> RepoDescription:
        """Ask for the commit and the files of the revision; later reads are of that commit."""
        self._check_name()
        place = f"{quote(self._repo_id)}/revision/{quote(self._revision, safe='')}"
        url = f"{self.site}/api/models/{place}?blobs=true"
        raw = self._fetch(url, Wanted(file=None, length=DESCRIPTION_LIMIT_BYTES + 1))
        try:
            if len(raw) > DESCRIPTION_LIMIT_BYTES:
                raise ValueError("too long")
            description = read_description(raw, revision=self._revision)
        except ValueError as cause:
            raise self._not_the_hubs("description of a repo", cause) from cause
        self._commit, self.files = description.commit, description.files
        return description

    def listing(self, query: ModelQuery) -> tuple[ListedModel, ...]:
        """The first page of the Hub's list of models."""
        raw = self._fetch(query.address(self.site), Wanted(file="list of models", length=LISTING_LIMIT_BYTES + 1))
        try:
            if len(raw) > LISTING_LIMIT_BYTES:
                raise ValueError("too long")
            return read_listing(raw, query.limit)
        except ValueError as cause:
            raise self._not_the_hubs("list of models", cause) from cause

    def _not_the_hubs(self, answer: str, cause: ValueError) -> HubServerError:
        message = f"the answer of {self.site} is not the Hub's {answer} ({type(cause).__name__})"
        hint = "HF_ENDPOINT, if set, must name a Hub; a login page or proxy may stand between"
        return HubServerError(message, subject=self.subject, hint=hint)

    def _check_name(self) -> None:
        try:
            validate_repo_id(self._repo_id)
        except ValueError as error:
            raise translate(error, self._call) from error

    def read(self, path: str, *, limit_bytes: int) -> bytes:
        listed = self._listed_size(path)
        too_long = listed is not None and listed > limit_bytes
        wanted = Wanted(file=path, length=limit_bytes + 1)
        raw = b"" if too_long else self._fetch(self._address(path), wanted)
        if too_long or len(raw) > limit_bytes:
            message, hint = f"{path}: is longer than {limit_bytes} bytes", "check the file on the repo's page"
            raise ConfigError(message, subject=self.subject, hint=hint)
        if listed is not None and len(raw) != listed:
            message = f"{path}: {len(raw)} bytes came, but the repo's list says {listed}"
            raise HubServerError(message, subject=self.subject, hint=f"try again; or {OFFLINE_HINT}")
        return raw

    def read_range(self, path: str, *, start: int, length: int) -> bytes:
        listed = self._listed_size(path)
        wanted = Wanted(file=path, start=start, length=length, ranged=True, file_size_bytes=listed)
        return self._fetch(self._address(path), wanted)

    def _listed_size(self, path: str) -> int | None:
        return next((file.size_bytes for file in self.files if file.path == path), None)

    def _address(self, path: str) -> str:
        return hf_hub_url(self._repo_id, path, revision=self._commit, endpoint=self.site)

    def _fetch(self, url: str, wanted: Wanted) -> bytes:
        """One body, with further attempts for faults that may pass; the place where foreign errors end."""
        call = replace(self._call, file=wanted.file)
        pause = self.limits.pause_seconds
        for attempt in range(1, self.limits.attempts + 1):
            try:
                return self._fetch_once(url, wanted, call)
            except Exception as error:
                own = translate(error, call)
                wait = pause if (asked := asked_to_wait(error)) is None else float(asked)
                left = self._deadline - time.monotonic()
                patient = wait <= min(left, self.limits.longest_wait_seconds)
                if attempt == self.limits.attempts or not patient or not may_pass(error):
                    if own is error:
                        raise
                    raise own from error
                time.sleep(wait)
                pause *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _fetch_once(self, url: str, wanted: Wanted, call: HubCall) -> bytes:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._too_late(call)
        headers = dict(self._headers)
        if wanted.ranged:
            headers["Range"] = f"bytes={wanted.start}-{wanted.start + wanted.length - 1}"
        timeout = min(self.limits.request_seconds, left)
        with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
            if response.status_code >= 400:
                # The client's judge reads a body without limit and quotes it, so it is given a safe copy.
                body = self._body(response.iter_raw(), ERROR_LIMIT_BYTES, call, whole=False)
                told = {name: response.headers[name] for name in ERROR_HEADERS if name in response.headers}
                kept = {name: ascii_only(redact(value, call.token)) for name, value in told.items()}
                shown = redact(body[:ERROR_LIMIT_BYTES].decode("utf-8", "replace"), call.token)
                copy = type(response)(response.status_code, headers=kept, text=shown, request=response.request)
                hf_raise_for_status(copy)
            part = wanted.judge(response.status_code, response.headers, self.subject)
            end = part.skip + part.take
            return self._body(response.iter_raw(), end, call, whole=part.to_the_end)[part.skip : end]

    def _body(self, chunks: Iterator[bytes], limit: int, call: HubCall, *, whole: bool) -> bytes:
        """At least ``limit`` bytes of a longer body; ``whole`` reads to the end of one of that length."""
        parts, count = [], 0
        while count < limit or (whole and count == limit):
            try:
                chunk = next(chunks, b"")
            except Exception as error:
                if any(foreign.__name__ == "ProtocolError" for foreign in type(error).__mro__):
                    raise BodyBreaksOffError(str(error)) from error
                raise
            if not chunk:
                break
            parts.append(chunk)
            count += len(chunk)
            if time.monotonic() > self._deadline:
                raise self._too_late(call)
        return b"".join(parts)

    def _too_late(self, call: HubCall) -> HubTimeoutError:
        seconds = self.limits.deadline_seconds
        message = f"the Hub was too slow: {call.what} was not read within {seconds:g} s in all"
        return HubTimeoutError(message, subject=self.subject, hint=f"try again; or {OFFLINE_HINT}")
