"""Requests and events cross the pipe unchanged, and nothing else is taken for one."""

import json

import pytest

from planner.trial.protocol import Event, ProtocolError, TrialRequest

REQUEST = TrialRequest(target_folder="/models/big", draft_folder="/models/small", num_speculative_tokens=4)


def test_a_request_comes_back_as_it_went() -> None:
    assert TrialRequest.from_json(REQUEST.to_json()) == REQUEST


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "null", '{"protocol": 1}', '{"target_folder": "x"}', '{"protocol": 2, "unknown": 3}'],
)
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        TrialRequest.from_json(text)


def test_an_event_comes_back_as_it_went() -> None:
    event = Event(name="progress", content={"run": {"tokens": 3}})
    assert Event.from_json(event.to_json()) == event


@pytest.mark.parametrize("text", ["", "[]", "loaded", "{}", json.dumps({"event": "shrug"})])
def test_what_is_no_event_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        Event.from_json(text)
