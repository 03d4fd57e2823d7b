"""A stand-in Hub and a machine that reads from it, for the tests of everything that asks the Hub."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_place import Place
from hub_server import HubServer
from huggingface_hub import close_session, constants


@pytest.fixture
def quiet_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No token, no proxy and no offline switch of this machine; a fresh session."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    close_session()
    yield
    close_session()


@pytest.fixture
def server(quiet_surroundings: None) -> Iterator[HubServer]:
    with HubServer() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, server: HubServer) -> Place:
    return Place(tmp_path, server.url)
