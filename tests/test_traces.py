"""Conversations and episodes as traces: what is stored of torchrl's own types, and what the dashboard shows of it."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trackio
from PIL import Image
from playwright.sync_api import expect
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase, lazy_stack, set_list_to_stack
from torchrl.data.llm import History
from torchrl.data.llm.history import ContentBase
from torchrl.envs import GymEnv, SerialEnv, StepCounter, Transform, TransformedEnv
from torchrl.envs.llm import ChatEnv
from torchrl.modules.llm.policies import ChatHistory

import reading
from children import Child
from servers import Server
from torchrl_trackio import TrackioLogger, TrackioWarning

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 17, "b": 25}}}
SUM = [
    {"role": "user", "content": "What is 17 + 25?"},
    {"role": "assistant", "content": "I add.", "tool_calls": [CALL]},
    {"role": "tool", "content": "42"},
    {"role": "assistant", "content": "It is 42."},
]
STORED_SUM = [*SUM[:2], {"role": "tool", "content": "42", "tool_call_id": "c1"}, SUM[3]]
HELLO = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]


@pytest.fixture(autouse=True)
def list_to_stack() -> Iterator[None]:
    """What torchrl's History asks for."""
    with set_list_to_stack(True):
        yield


@pytest.fixture
def logger(shared: TrackioLogger) -> TrackioLogger:
    """One logger for all tests, which each have a name of their own."""
    return shared


def stored(logger: TrackioLogger, name: str) -> list[dict[str, Any]]:
    """The messages, metadata and spans of the traces of that name, in their order."""
    logger.flush()
    project, columns = logger.experiment.project, ("messages", "metadata", "spans")
    sql = f"SELECT {', '.join(columns)} FROM traces WHERE key = ? ORDER BY trace_index"
    return [dict(zip(columns, map(json.loads, row), strict=True)) for row in reading.query(project, sql, name)]


@pytest.fixture
def log(logger: TrackioLogger) -> Callable[..., list[dict[str, Any]]]:
    """Logs a trace under a name of its own, and reads back what is stored."""

    def log(trace: Any, **options: Any) -> list[dict[str, Any]]:
        name = reading.new_name()
        logger.log_trace(name, trace, **options)
        return stored(logger, name)

    return log


def talk(messages: list[dict[str, Any]], **metadata: Any) -> dict[str, Any]:
    """What is stored of a conversation; its reward is also what the dashboard's list calls its status."""
    gained = metadata.get("return", metadata.get("reward"))
    if isinstance(gained, (int, float)):
        metadata["status"] = f"reward {gained:g}"
    return {"messages": messages, "metadata": metadata, "spans": []}


def history(*chats: list[dict[str, Any]]) -> History:
    """Torchrl's own structure for several conversations, ``[N, T]``."""
    return History.from_chats(list(chats))


CONVERSATIONS: dict[str, tuple[Callable[[], Any], list[list[dict[str, Any]]]]] = {
    "messages": (lambda: SUM, [STORED_SUM]),
    "tuple of messages": (lambda: tuple(SUM), [STORED_SUM]),
    "list of conversations": (lambda: [SUM, HELLO], [STORED_SUM, HELLO]),
    "History []": (lambda: History(**HELLO[0]), [HELLO[:1]]),
    "History [T]": (lambda: History.from_chats(SUM), [STORED_SUM]),
    "History [N, T]": (lambda: history(SUM, HELLO), [STORED_SUM, HELLO]),
    "History [M, N, T]": (
        lambda: lazy_stack([history(SUM, HELLO), history(HELLO, SUM)]),
        [STORED_SUM, HELLO, HELLO, STORED_SUM],
    ),
    "History that was built at once": (
        lambda: History(role=["user", "assistant"], content=["Hello", "Good day"], batch_size=(2,)),
        [HELLO],
    ),
    "History of a sequence's placeholders": (
        lambda: lazy_stack([*(History(**m) for m in HELLO), History(role="<none>", content="")]),
        [HELLO],
    ),
    "full": (
        lambda: ChatHistory(prompt=history(SUM[:1]), full=history(SUM), batch_size=(1,)),
        [STORED_SUM],
    ),
    "prompt and response": (
        lambda: ChatHistory(prompt=history(SUM[:3], HELLO[:1]), response=history(SUM[3:], HELLO[1:]), batch_size=(2,)),
        [STORED_SUM, HELLO],
    ),
    "prompt": (lambda: ChatHistory(prompt=history(HELLO[:1]), batch_size=(1,)), [HELLO[:1]]),
    "list of Histories": (lambda: [History.from_chats(SUM), history(HELLO, HELLO)], [STORED_SUM, HELLO, HELLO]),
}


@pytest.mark.parametrize(("build", "expected"), CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_conversations(log: Any, build: Callable[[], Any], expected: list[list[dict[str, Any]]]) -> None:
    """Each conversation is a trace of its messages: roles, contents, tool calls, and answers with the call's id."""
    assert log(build()) == [talk(messages) for messages in expected]


FIRST, SECOND = {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}
PAIRED = [{**FIRST, "tool_call_id": "c1"}, {**SECOND, "tool_call_id": "c2"}]
ANSWERS = {
    "a message each": ([FIRST, SECOND], PAIRED),
    "with an id, in another order": ([PAIRED[1], FIRST], PAIRED[::-1]),
    "tool_responses": ([{"role": "tool", "content": "", "tool_responses": ["1", "2"]}], PAIRED),
    "tool_responses, also as a text": ([{"role": "tool", "content": "1", "tool_responses": ["1"]}], PAIRED[:1]),
    "tool_responses beside another text": (
        [{"role": "tool", "content": "raw", "tool_responses": ["1", "2"]}],
        [*PAIRED, {"role": "tool", "content": "raw"}],
    ),
    "tool_responses of a user": (
        [{"role": "user", "content": "see", "tool_responses": ["1"]}],
        [{"role": "user", "content": "see"}, PAIRED[0]],
    ),
}


@pytest.mark.parametrize(("answers", "expected"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("build", [list, History.from_chats], ids=["messages", "History"])
def test_answers_of_tools_name_their_calls(log: Any, build: Any, answers: Any, expected: Any) -> None:
    """Answers become messages of their own, in the order of the calls unless they name one."""
    if build is not list and any("tool_call_id" in answer for answer in answers):
        pytest.skip("a History has no tool_call_id")
    asked = {"role": "assistant", "content": "", "tool_calls": [CALL, {**CALL, "id": "c2"}]}
    said = {**asked, "content": "add(a=17, b=25), add(a=17, b=25)"}
    assert log(build([asked, *answers])) == [talk([said, *expected])]


@pytest.mark.parametrize(
    ("content", "call", "text"),
    [
        ("", {"name": "add", "arguments": {"a": 1, "b": "x"}}, "add(a=1, b='x')"),
        (None, {"function": {"name": "add", "arguments": '{"a": 1}'}}, 'add({"a": 1})'),
        (None, {"function": {"name": "stop"}}, "stop()"),
        ("", {"kind": "unknown"}, "{'kind': 'unknown', 'id': 'call-0-0'}"),
        ("I add.", {"name": "add", "arguments": {}}, "I add."),
    ],
    ids=["flat", "text", "no arguments", "unknown", "with a text"],
)
def test_message_of_calls_only(log: Any, content: str | None, call: dict[str, Any], text: str) -> None:
    """Its text is the calls, since the dashboard's list would call it no response; another text stays."""
    (trace,) = log([{"role": "assistant", "content": content, "tool_calls": [call]}])
    assert trace["messages"][0]["content"] == text


REWARDS: dict[str, Any] = {
    "list": [1.0, 0.5],
    "tuple": (1.0, 0.5),
    "array": np.array([1.0, 0.5]),
    "list of tensors": [torch.tensor([1.0]), torch.tensor(0.5)],
    "(2, 1) tensor": torch.tensor([[1.0], [0.5]]),
    "(1, 2) tensor": torch.tensor([[1.0, 0.5]]),
    "(2, 1, 1) tensor": torch.tensor([[[1.0]], [[0.5]]]),
    "(1, 2, 1) array": np.array([[[1.0], [0.5]]]),
}


@pytest.mark.parametrize("reward", REWARDS.values(), ids=REWARDS)
def test_metadata_of_each_of_several(log: Any, reward: Any) -> None:
    """Of what has one element for each trace, each gets its own; everything else is of all."""
    metadata = {"reward": reward, "seeds": [1, 2, 3], "text": "ab", "vectors": [[1, 2], [3, 4]]}
    assert log([HELLO, HELLO], metadata=metadata) == [
        talk(HELLO, reward=1.0, vectors=[1, 2], seeds=[1, 2, 3], text="ab"),
        talk(HELLO, reward=0.5, vectors=[3, 4], seeds=[1, 2, 3], text="ab"),
    ]


PARTS: dict[str, tuple[Any, list[Any]]] = {
    "(M, N, 1)": (torch.arange(6).reshape(2, 3, 1), [0, 1, 2, 3, 4, 5]),
    "(M, N, T)": (torch.arange(12).reshape(2, 3, 2), [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]),
    "(M * N, T)": (np.arange(12).reshape(6, 2), [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]),
    "nested": (torch.nested.nested_tensor([torch.arange(n) for n in range(1, 7)], layout=torch.jagged), None),
    "one for all": (torch.ones(1, 1), 6 * [1.0]),
    "(1, T) for all": (torch.ones(1, 2), 6 * [[[1.0, 1.0]]]),
}


@pytest.mark.parametrize(("value", "expected"), PARTS.values(), ids=PARTS)
def test_metadata_of_a_batch_with_two_dimensions(log: Any, value: Any, expected: list[Any] | None) -> None:
    """The first dimensions of a tensor or array are those of the conversations."""
    found = log(lazy_stack([history(HELLO, SUM, HELLO)] * 2), metadata={"value": value})
    assert [trace["metadata"]["value"] for trace in found] == (expected or [0, *(list(range(n)) for n in range(2, 7))])


@pytest.mark.parametrize("value", [torch.ones(3), np.ones((3, 1))], ids=["tensor", "array"])
def test_metadata_that_fits_no_trace(log: Any, value: Any) -> None:
    """It is stored with each trace, and that this may not be meant is said."""
    said = (
        r"^each of 2 traces gets the whole of the metadata 'reward', .* of shape \(3,.*: to give each its own, pass 2"
    )
    with pytest.warns(TrackioWarning, match=said):
        found = log([HELLO, HELLO], metadata={"reward": value})
    assert found == [talk(HELLO, reward=value.tolist())] * 2


@pytest.mark.parametrize(
    "reward", [torch.tensor([1.0]), torch.ones(1, 1), np.ones(1), 1], ids=["1", "1x1", "array", "int"]
)
def test_metadata_of_one(log: Any, reward: Any) -> None:
    """A single trace gets lists and tensors of several numbers as they are, and one number without dimensions."""
    found = log(HELLO, metadata={"reward": reward, "list": [1.0], "many": torch.ones(1, 2)})
    assert found == [talk(HELLO, reward=1.0, list=[1.0], many=[[1.0, 1.0]])]


STATUSES: dict[str, tuple[Callable[[], Any], dict[str, Any], str | None]] = {
    "reward": (lambda: HELLO, {"reward": 0.5}, "reward 0.5"),
    "reward in place of the tensordict's": (
        lambda: batch(history(HELLO, HELLO), reward=torch.ones(2, 1))[:1],
        {"reward": 0.5},
        "reward 0.5",
    ),
    "reward of what has ended": (
        lambda: batch(history(HELLO, HELLO), terminated=flag(1, 1))[:1],
        {"reward": 0.5},
        "reward 0.5",
    ),
    "status": (lambda: HELLO, {"reward": 0.5, "status": "solved"}, "solved"),
    "several rewards": (lambda: HELLO, {"reward": [0.5, 1.0]}, None),
    "several rewards and their sum": (lambda: HELLO, {"reward": [0.5, 1.0], "return": 1.5}, "reward 1.5"),
    "status of a Trace": (lambda: trackio.Trace(HELLO, {"status": "solved"}), {"reward": 0.5}, "solved"),
    "Trace without one": (lambda: trackio.Trace(HELLO, {"status": None}), {"reward": 0.5}, "reward 0.5"),
    "episode": (lambda: control(3), {"reward": 0.5}, "terminated"),
}


@pytest.mark.parametrize(("build", "metadata", "status"), STATUSES.values(), ids=STATUSES)
def test_the_reward_of_a_conversation_is_its_status(
    log: Any, build: Callable[[], Any], metadata: dict[str, Any], status: str | None
) -> None:
    """The dashboard lists it, unless somebody has told another one, or an episode's end."""
    (trace,) = log(build(), metadata=metadata)
    assert trace["metadata"].get("status") == status
    assert trace["metadata"]["reward"] == metadata["reward"]


NOBODY = {"role": "<none>", "content": ""}


@pytest.mark.parametrize("build", [list, lambda chats: history(*chats)], ids=["list", "History"])
def test_conversations_without_messages_among_others(log: Any, build: Callable[[Any], Any]) -> None:
    """They are stored, too, so that each reward stays with its conversation."""
    found = log(build([[NOBODY, NOBODY], HELLO]), metadata={"reward": [0.0, 1.0]})
    assert found == [talk([], reward=0.0), talk(HELLO, reward=1.0)]


def test_a_conversation_does_not_continue_one_without_messages(log: Any) -> None:
    """In a batch they are two, with a reward each."""
    td = batch(history([NOBODY, NOBODY], HELLO), reward=torch.tensor([[0.0], [1.0]]))
    assert log(td) == [talk([], reward=0.0), talk(HELLO, reward=1.0)]


def test_calls_without_ids_get_some(log: Any) -> None:
    """Calls in torchrl's flat form are kept as they are, and named, so that their answers can be."""
    call = {"name": "add", "arguments": {"a": 1}}
    chat = History.from_chats([HELLO[0], {**HELLO[1], "tool_calls": [call]}, {"role": "tool", "content": "2"}])
    named = {**HELLO[1], "tool_calls": [{**call, "id": "call-1-0"}]}
    answer = {"role": "tool", "content": "2", "tool_call_id": "call-1-0"}
    assert log(chat) == [talk([HELLO[0], named, answer])]


def test_content_of_several_parts(log: Any) -> None:
    """Content parts stay parts, without their empty fields; that a message was cut off is kept."""
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image", "url": "https://example.com/cat.png"}]
    content = lazy_stack([ContentBase(**part) for part in parts])
    chat = lazy_stack([History("user", content), History("assistant", "A", is_complete=False), History("user", parts)])
    expected = [{"role": "user", "content": parts}, {"role": "assistant", "content": "A", "is_complete": False}]
    assert log(chat) == [talk([*expected, expected[0]])]


class Color(enum.Enum):
    """Not JSON."""

    RED = "red"


@dataclasses.dataclass
class Judge:
    """Not JSON either."""

    name: str
    weights: torch.Tensor


VALUES = {
    "tensor": (torch.tensor([[1, 2]]), [[1, 2]]),
    "0-d tensor": (torch.tensor(0.5), 0.5),
    "big tensor": (torch.zeros(2000), "Tensor of shape (2000,) and dtype torch.float32"),
    "tensor of float32": (torch.tensor([0.1, 2.0]), [0.1, 2.0]),
    "array": (np.arange(3), [0, 1, 2]),
    "NumPy number": (np.float32(0.5), 0.5),
    "infinity": (math.inf, "Infinity"),
    "enum": (Color.RED, "red"),
    "dataclass": (Judge("a", torch.ones(2)), {"name": "a", "weights": [1.0, 1.0]}),
    "path": (Path("a/b"), "a/b"),
    "tuple": ((1, None, True), [1, None, True]),
    "keys that are no strings": ({1: 2, ("a", "b"): 3}, {"1": 2, "a/b": 3}),
    "huge integer": (2**80, str(2**80)),
    "lone surrogate": ("\ud800", "?"),
    "tensordict": (TensorDict(a=torch.ones(2)), {"a": [1.0, 1.0]}),
}


@pytest.mark.parametrize(("value", "expected"), VALUES.values(), ids=VALUES)
def test_values_of_every_type(log: Any, value: Any, expected: Any) -> None:
    """In messages as in metadata, what is no JSON becomes numbers, lists and texts."""
    messages = [{"role": "user", "content": [{"type": "text", "text": "x", "extra": value}]}]
    (trace,) = log(messages, metadata={"value": value})
    assert trace["messages"][0]["content"][0]["extra"] == expected
    assert trace["metadata"] == {"value": expected}


def test_media_in_messages_are_stored_as_files(log: Any) -> None:
    """Trackio's own media stay what they are."""
    image = trackio.Image(Image.new("RGB", (8, 8), "red"))
    (trace,) = log([{"role": "user", "content": [image]}])
    (part,) = trace["messages"][0]["content"]
    with Image.open(reading.folder() / "media" / part["file_path"]) as file:
        assert file.convert("RGB").getpixel((0, 0)) == (255, 0, 0)


def test_traces_pass_through(log: Any) -> None:
    """A Trace is stored with its metadata merged and its tensors converted, and is not changed itself."""
    span = {"id": "s", "name": "think", "kind": "generation"}
    trace = trackio.Trace(HELLO, {"a": torch.tensor(1), "b": 2}, [{**span, "output": torch.ones(1)}])
    assert log([trace, HELLO], metadata={"b": 3}) == [
        {
            "messages": HELLO,
            "metadata": {"a": 1, "b": 3},
            "spans": [{**span, "output": [1.0]}],
        },
        talk(HELLO, b=3),
    ]
    assert trace.metadata["b"] == 2


def batch(chat: Any, **entries: Any) -> TensorDict:
    """A batch of two conversations as a GRPO loss takes it."""
    return TensorDict(history=chat, **entries, batch_size=(2,))


def flag(*values: int) -> torch.Tensor:
    """A done flag ``[N, 1]``."""
    return torch.tensor(values, dtype=torch.bool)[:, None]


def test_rewards_numbers_and_texts_of_a_batch(log: Any) -> None:
    """A batch's numbers are each conversation's metadata, of ``next`` where it has them, but no token ids."""
    after = TensorDict(reward=torch.tensor([[[1.0]], [[0.1]]]), done=flag(1, 1), terminated=flag(1, 0), batch_size=(2,))
    chat = ChatHistory(prompt=history(SUM[:1], HELLO[:1]), full=history(SUM, HELLO), batch_size=(2,))
    entries = {"advantage": torch.tensor([[0.7], [-0.7]]), "query": ["What is 17 + 25?", "?"], "answer": ["42", ""]}
    tokens = TensorDict(full=torch.ones(2, 9), batch_size=(2,))
    td = batch(chat, tokens=tokens, reward=torch.zeros(2, 1), ids=torch.ones(2, 9), next=after, **entries)
    assert log(td, metadata={"answer": "?"}) == [
        talk(STORED_SUM, reward=1.0, advantage=0.7, answer="?"),
        talk(HELLO, reward=0.1, advantage=-0.7, query="?", answer="?"),
    ]


def test_rewards_of_each_token(log: Any) -> None:
    """Of as many numbers as there are tokens, equal ones are one, and different rewards are summed up, too."""
    each = [
        TensorDict(history=History.from_chats(HELLO), reward=torch.arange(n).float(), advantage=torch.full((n, 1), 0.5))
        for n in (2, 3)
    ]
    assert log(LazyStackedTensorDict(*each)) == [
        talk(HELLO, reward=[0.0, 1.0], advantage=0.5, **{"return": 1.0}),
        talk(HELLO, reward=[0.0, 1.0, 2.0], advantage=0.5, **{"return": 3.0}),
    ]


OF_TOKENS: dict[str, tuple[torch.Tensor, dict[str, Any]]] = {
    "repeated for each token": (torch.ones(2, 512, 1), {"reward": 1.0}),
    "at the last token": (torch.eye(9)[-1].expand(2, 9), {"reward": [0.0] * 8 + [1.0], "return": 1.0}),
    "too many": (torch.arange(512.0).expand(2, -1), {"reward": "512 numbers from 0 to 511", "return": 130816.0}),
}


@pytest.mark.parametrize(("reward", "expected"), OF_TOKENS.values(), ids=OF_TOKENS)
def test_the_return_of_rewards_of_tokens(log: Any, reward: torch.Tensor, expected: dict[str, Any]) -> None:
    """A reward that was repeated for each token is one reward; others are summed up, however many."""
    assert log(batch(history(SUM, HELLO), reward=reward)) == [talk(STORED_SUM, **expected), talk(HELLO, **expected)]


def test_rewards_of_tokens_over_several_turns(log: Any) -> None:
    """Each turn's reward counts once in the return; turns of few and of too many numbers stand beside each other."""
    many = torch.nested.nested_tensor([torch.arange(512.0), torch.ones(3)], layout=torch.jagged)
    td = batch(history(HELLO[:1], HELLO), reward=torch.tensor([[1.0] * 8, [0.5] * 8]), advantage=many)
    advantage = ["512 numbers from 0 to 511", 1.0]
    assert log(td) == [talk(HELLO, reward=[1.0, 0.5], advantage=advantage, **{"return": 1.5})]


def test_a_conversation_under_any_key(log: Any) -> None:
    """The conversation is found at any depth, and before that of ``next``."""
    inner = TensorDict(deep=TensorDict(chat=history(SUM, HELLO), batch_size=(2,)), batch_size=(2,))
    td = TensorDict(a=inner, next=TensorDict(chat=history(HELLO, HELLO), batch_size=(2,)), batch_size=(2,))
    assert log(td) == [talk(STORED_SUM), talk(HELLO)]


class Calculator(Transform):
    """Answers the first environment's calls, gives rewards, and ends the second environment after one step."""

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        full = tensordict["history"].full
        answers = history([{"role": "tool", "content": "42"}], [{"role": "<none>", "content": ""}])
        next_tensordict["history"].prompt = full.extend(answers, dim=-1, inplace=False)
        turn = float(full.batch_size[-1] > 0 and len(full[0]))
        next_tensordict["reward"] = torch.tensor([[turn], [0.5]])
        return next_tensordict


def chat_policy(td: TensorDictBase) -> TensorDictBase:
    """Calls a tool in the first environment and greets in the second."""
    chat = td["history"]
    chat.response = history([{"role": "assistant", "content": "", "tool_calls": [CALL]}], HELLO[1:])
    chat.full = chat.prompt.extend(chat.response, dim=-1, inplace=False)
    td["history"] = chat
    return td


@pytest.mark.parametrize("row", [False, True], ids=["[N, T]", "[T]"])
def test_a_rollout_of_several_turns_is_one_conversation(log: Any, row: bool) -> None:
    """The turns of a ChatEnv's rollout are one trace, up to the environment's last answer, with a reward each."""
    env = TransformedEnv(ChatEnv(system_prompt="Add.", batch_size=(2,)), Calculator())
    start = env.reset(TensorDict(query=["17 + 25?", "Hello"], batch_size=(2,)))
    rollout = env.rollout(2, chat_policy, auto_reset=False, tensordict=start)
    turn = [
        {"role": "assistant", "content": "add(a=17, b=25)", "tool_calls": [CALL]},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]
    system, greeting = {"role": "system", "content": "Add."}, HELLO[1]
    expected = [
        talk([system, {"role": "user", "content": "17 + 25?"}, *turn, *turn], reward=[3.0, 5.0], **{"return": 8.0}),
        talk([system, HELLO[0], greeting, greeting], reward=[0.5, 0.5], **{"return": 1.0}),
    ]
    assert log(rollout[0] if row else rollout) == expected[: 1 if row else 2]


def test_done_keeps_conversations_apart(log: Any) -> None:
    """A conversation that goes on where another one was done is another trace."""
    td = batch(history(HELLO[:1], HELLO), reward=torch.tensor([[1.0], [2.0]]), done=flag(1, 0))
    assert log(td) == [talk(HELLO[:1], reward=1.0), talk(HELLO, reward=2.0)]


def pendulum(steps: int) -> TensorDictBase:
    """A rollout ``[T]`` with continuous actions."""
    env = GymEnv("Pendulum-v1")
    env.set_seed(0)
    return env.rollout(steps)


def test_an_episode_has_a_span_for_each_step(log: Any) -> None:
    """Each span has action and observation as its input, reward and flags as its output; the last one what came out."""
    rollout = pendulum(3)
    rewards = rollout["next", "reward"].squeeze(-1).tolist()
    (trace,) = log(rollout)
    total = trace["metadata"].pop("return")
    assert total == pytest.approx(sum(rewards))
    assert trace["metadata"] == {"length": 3, "status": "not done"}
    assert trace["messages"] == [
        {"role": "user", "content": "Episode of 3 steps"},
        {"role": "assistant", "content": f"return {total:.6g}, not done"},
    ]
    for step, span in enumerate(trace["spans"]):
        assert span["id"] == f"step-{step}"
        assert span["name"] == f"step {step}: reward {span['output']['reward']:.6g}"
        assert span["kind"] == "span"
        observation = rollout["observation"][step].tolist()
        action = rollout["action"][step].item()
        assert span["input"] == {"action": pytest.approx(action), "observation": pytest.approx(observation)}
        last = {"observation": pytest.approx(rollout["next", "observation"][2].tolist())} if step == 2 else {}
        flags = {"done": False, "terminated": False, "truncated": False}
        assert span["output"] == {"reward": pytest.approx(rewards[step]), **flags, **last}


def episodes(log: Any, rollout: Any) -> list[dict[str, Any]]:
    """The metadata of the traces stored of a rollout, each with as many spans as steps."""
    found = log(rollout)
    assert [len(trace["spans"]) for trace in found] == [trace["metadata"]["length"] for trace in found]
    return [trace["metadata"] for trace in found]


def cartpoles(steps: int = 10_000) -> SerialEnv:
    """Two environments, whose episodes have at most that many steps."""
    torch.manual_seed(0)  # of the random actions
    env = SerialEnv(2, lambda: TransformedEnv(GymEnv("CartPole-v1"), StepCounter(steps)))
    env.set_seed(0)
    return env


def ends(rollout: TensorDictBase) -> list[list[int]]:
    """The steps at which each environment is done."""
    return [row.nonzero().flatten().tolist() for row in rollout["next", "done"].squeeze(-1)]


def test_each_environment_is_a_trace(log: Any) -> None:
    """A batched rollout that ends with the first that is done."""
    rollout = cartpoles().rollout(200)
    length = rollout.shape[1]
    status = ["terminated" if done else "not done" for done in ends(rollout)]
    assert episodes(log, rollout) == [
        {"return": length, "length": length, "status": status[env], "env": env} for env in (0, 1)
    ]


def test_episodes_that_follow_each_other_are_traces_of_their_own(log: Any) -> None:
    """``break_when_any_done=False``: one trace for each episode, the last of a row being cut."""
    expected = [
        {"return": length, "length": length, "status": status, "env": env, "episode": number}
        for env in (0, 1)
        for number, (length, status) in enumerate([(5, "truncated"), (5, "truncated"), (2, "not done")])
    ]
    assert episodes(log, cartpoles(5).rollout(12, break_when_any_done=False)) == expected


@pytest.mark.parametrize("single", [False, True], ids=["[N, T]", "[T]"])
def test_an_environment_that_waits_for_the_others_has_ended(log: Any, single: bool) -> None:
    """``break_when_all_done``: the copies of the last step are no steps, and add no reward."""
    rollout = cartpoles().rollout(500, break_when_all_done=True)
    lengths = [done[0] + 1 for done in ends(rollout)]
    assert len(set(lengths)) == 2
    expected = [{"return": length, "length": length, "status": "terminated"} for length in lengths]
    if single:
        first = lengths.index(min(lengths))
        assert episodes(log, rollout[first]) == [expected[first]]
    else:
        assert episodes(log, rollout) == [{**metadata, "env": env} for env, metadata in enumerate(expected)]


def test_episodes_of_one_step(log: Any) -> None:
    """A bandit's steps are an episode each, however alike they are."""
    after = TensorDict(reward=torch.ones(3, 1), done=flag(1, 1, 1), batch_size=(3,))
    rollout = TensorDict(action=torch.zeros(3, 1), next=after, batch_size=(3,))
    assert episodes(log, rollout) == [
        {"return": 1.0, "length": 1, "status": "done", "episode": number} for number in range(3)
    ]


@pytest.mark.parametrize("observed", [{}, {"observation": torch.zeros(4, 3)}], ids=["no", "a constant"])
def test_short_episodes_that_look_alike_are_kept(log: Any, observed: dict[str, torch.Tensor]) -> None:
    """Of one step each after one of two; only what has observed something else since its beginning can have waited."""
    after = TensorDict(reward=torch.ones(4, 1), done=flag(0, 1, 1, 1), batch_size=(4,))
    rollout = TensorDict(action=torch.zeros(4, 1), next=after, batch_size=(4,), **observed)
    assert [metadata["length"] for metadata in episodes(log, rollout)] == [2, 1, 1]


RETURNS = {
    "bool": (torch.ones(300, 1).bool(), 300),
    "int8": (torch.full((300, 1), 100, dtype=torch.int8), 30_000),
    "uint8": (torch.full((300, 1), 200, dtype=torch.uint8), 60_000),
    "int64 of two agents": (torch.tensor([[2**53, 1], [1, 1]]), [2**53 + 1, 2]),
    "float16": (torch.full((300, 1), 500, dtype=torch.float16), 150_000.0),
    "bfloat16": (torch.full((300, 1), 1, dtype=torch.bfloat16), 300.0),
    "float32": (torch.full((300, 1), 0.1), 30.0),
    "float64": (torch.tensor([[0.1], [0.2]], dtype=torch.float64), 0.1 + 0.2),
}


@pytest.mark.parametrize(("reward", "expected"), RETURNS.values(), ids=RETURNS)
def test_the_return_of_rewards_of_every_dtype(log: Any, reward: torch.Tensor, expected: Any) -> None:
    """The sum is not bound to what the rewards' dtype can hold."""
    (trace,) = log(TensorDict(reward=reward, batch_size=reward.shape[:1]))
    assert trace["metadata"]["return"] == expected


def control(*size: int, done: bool = False) -> TensorDict:
    """A rollout with 8 observations and 2 actions a step, of which the last of each row, or every one, is done."""
    last = torch.arange(size[-1])[:, None].expand(*size, 1) == size[-1] - 1
    end = {"done": last | done, "terminated": last | done, "truncated": torch.zeros(*size, 1).bool()}
    after = TensorDict(reward=torch.ones(*size, 1), observation=torch.rand(*size, 8), **end, batch_size=size)
    begun = {"observation": torch.rand(*size, 8), "action": torch.rand(*size, 2)}
    return TensorDict(**begun, next=after, batch_size=size)


MANY: dict[str, tuple[Callable[[], Any], int, str | None]] = {
    "environments": (lambda: control(100, 3), 32, "the first 32 of a batch of 100 x 3 steps"),
    "episodes of a row": (lambda: control(100, done=True), 32, "the first 32 of a batch of 100 steps"),
    "rollouts": (lambda: [control(2)] * 30 + [control(4, 2)], 32, "the first 2 of a batch of 4 x 2 steps"),
    "no more than are stored": (lambda: control(32, 3), 32, None),
}


@pytest.mark.parametrize(("build", "count", "said"), MANY.values(), ids=MANY)
def test_many_episodes_are_cut_and_say_so(log: Any, build: Callable[[], Any], count: int, said: str | None) -> None:
    """The first 32 episodes of a call are stored; the metadata says of what, and a warning that there were more."""
    if said is None:
        stored = log(build())
    else:
        with pytest.warns(TrackioWarning, match="log_trace stores the first 32 episodes of a call"):
            stored = log(build())
    assert len(stored) == count
    assert stored[-1]["metadata"].get("episodes") == said
    assert all(span["output"]["reward"] == 1.0 for trace in stored for span in trace["spans"])


def test_conversations_are_all_stored(log: Any) -> None:
    """A batch of GRPO: the dashboard shows them by pages."""
    assert log(history(*[HELLO] * 512)) == [talk(HELLO)] * 512


def test_big_values_of_different_shapes_are_described(log: Any) -> None:
    """What has over 16 numbers at any step is not written out where its shape changes, either."""
    steps = [TensorDict(points=torch.zeros(number), reward=torch.ones(1)) for number in (3, 17)]
    (trace,) = log(LazyStackedTensorDict(*steps))
    assert list(trace["metadata"]["not shown"]) == ["points"]
    assert [span["input"] for span in trace["spans"]] == [{}, {}]


def test_the_padding_of_split_trajectories_is_left_out(log: Any) -> None:
    """Only the steps under the mask are steps."""
    after = TensorDict(reward=torch.ones(2, 4, 1), done=torch.zeros(2, 4, 1).bool(), batch_size=(2, 4))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    rollout = TensorDict(action=torch.zeros(2, 4), mask=mask, next=after, batch_size=(2, 4))
    assert [metadata["length"] for metadata in episodes(log, rollout)] == [4, 2]


def test_long_episodes_are_cut_and_say_so(log: Any) -> None:
    """500 spans are stored; the metadata and the text in the dashboard's list say of how many, the return is of all."""
    (trace,) = log(TensorDict(reward=torch.ones(600, 1), done=flag(*[0] * 599, 1), batch_size=(600,)))
    assert len(trace["spans"]) == 500
    cut = {"return": 600.0, "length": 600, "status": "done", "spans": "the first 500 of 600 steps"}
    assert trace["metadata"] == cut
    assert trace["messages"][0]["content"] == "Episode of 600 steps, the first 500 are shown"


def test_big_values_are_described_once(log: Any) -> None:
    """What has over 16 numbers a step is named in the metadata with its shape, and not written out."""
    rollout = TensorDict(pixels=torch.zeros(2, 3, 8, 8), action=["left", "right"], batch_size=(2,))
    (trace,) = log(rollout)
    described = {"pixels": "Tensor of shape (2, 3, 8, 8) and dtype torch.float32"}
    assert trace["metadata"] == {"length": 2, "status": "not done", "not shown": described}
    assert [span["input"] for span in trace["spans"]] == [{"action": "left"}, {"action": "right"}]


def test_several_agents(log: Any) -> None:
    """Nested keys are joined; each agent has its return, and the episode is done when all are."""
    done = torch.tensor([[[1], [0]], [[1], [1]]]).bool()
    reward = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    after = TensorDict(agents=TensorDict(reward=reward, done=done, batch_size=(2, 2)), batch_size=(2,))
    agents = TensorDict(action=torch.zeros(2, 2, dtype=torch.int64), batch_size=(2, 2))
    (trace,) = log(TensorDict(agents=agents, next=after, batch_size=(2,)))
    assert trace["metadata"] == {"return": [4.0, 6.0], "length": 2, "status": "done"}
    assert [span["name"] for span in trace["spans"]] == ["step 0: reward [1, 2]", "step 1: reward [3, 4]"]
    assert trace["spans"][0]["input"] == {"agents/action": [0, 0]}
    assert trace["spans"][0]["output"] == {"agents/reward": [1.0, 2.0], "agents/done": [True, False]}


def agents(first: dict[str, int], second: dict[str, int], *size: int) -> TensorDict:
    """A rollout of two agents, each of entries with so many zeros a step."""
    parts = (TensorDict({name: torch.zeros(*size, n) for name, n in part.items()}, size) for part in (first, second))
    stack = LazyStackedTensorDict(*parts, stack_dim=len(size))
    return TensorDict({"agents": stack, "next": {"reward": torch.ones(*size, 1)}}, size)


OTHER_SHAPES = {"agents/action": [0.0, 0.0], "agents/0/x": [0.0, 0.0], "agents/1/x": [0.0, 0.0, 0.0]}
OTHER_KEYS = {"agents/0/action": 0.0, "agents/1/move": 0.0, "agents/x": [[0.0, 0.0], [0.0, 0.0]]}
AGENTS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "shapes": (lambda: agents({"x": 2, "action": 1}, {"x": 3, "action": 1}, 3), OTHER_SHAPES),
    "keys": (lambda: agents({"x": 2, "action": 1}, {"x": 2, "move": 1}, 3), OTHER_KEYS),
    "keys, in a batch": (lambda: agents({"x": 2, "action": 1}, {"x": 2, "move": 1}, 1, 3), OTHER_KEYS),
    "keys, step by step": (
        lambda: lazy_stack([agents({"x": 2, "action": 1}, {"x": 2, "move": 1}) for _ in range(3)]),
        OTHER_KEYS,
    ),
}


@pytest.mark.parametrize(("build", "entries"), AGENTS.values(), ids=AGENTS)
def test_agents_that_differ(log: Any, build: Callable[[], Any], entries: dict[str, Any]) -> None:
    """What only some of them have, or in another shape, is named by their numbers."""
    (trace,) = log(build())
    assert [span["input"] for span in trace["spans"]] == [entries] * 3
    assert [span["output"] for span in trace["spans"]] == [{"reward": 1.0}] * 3
    assert trace["metadata"]["return"] == 3.0


def test_entries_that_some_steps_lack(log: Any) -> None:
    """They are null at those steps."""
    steps = [TensorDict(reward=torch.ones(1)), TensorDict(reward=torch.ones(1), hint=torch.zeros(2), note="x")]
    (trace,) = log(lazy_stack(steps))
    assert [span["input"] for span in trace["spans"]] == [
        {"hint": None, "note": None},
        {"hint": [0.0, 0.0], "note": "x"},
    ]


def test_several_groups_of_agents(log: Any) -> None:
    """Each group has its return."""
    groups = {name: TensorDict(reward=torch.ones(2, 1), batch_size=(2,)) for name in ("a", "b")}
    (trace,) = log(TensorDict(**groups, batch_size=(2,)))
    assert trace["metadata"]["return"] == {"a/reward": 2.0, "b/reward": 2.0}


def test_one_step(log: Any) -> None:
    """What ``env.step`` returns is an episode of one step; NaN rewards are stored."""
    after = TensorDict(reward=torch.tensor([math.nan]), truncated=torch.tensor([True]))
    (trace,) = log(TensorDict(action=torch.tensor([1]), next=after))
    assert trace["metadata"] == {"return": "NaN", "length": 1, "status": "truncated"}


WRONG = {
    "number": (lambda: 3, TypeError, r"log_trace takes a conversation .*, got 3 \(int\)"),
    "text": (lambda: "Hello", TypeError, r"got 'Hello' \(str\)"),
    "list of texts": (lambda: ["Hello"], TypeError, r"in a list of 1, got 'Hello' \(str\)"),
    "messages and others": (lambda: [HELLO[0], 3], TypeError, r"in a list of 2, got .*\(dict\)"),
    "list of numbers": (lambda: [3, 4], TypeError, r"got 3 \(int\)"),
    "empty list": (list, ValueError, "got an empty list"),
    "empty conversation in a list": (lambda: [HELLO, []], ValueError, "got an empty list"),
    "no messages": (lambda: History(**HELLO[0], batch_size=(1,))[:0], ValueError, "got a History without any message"),
    "placeholders": (lambda: [NOBODY], ValueError, "got a list without any message"),
    "conversations of placeholders": (lambda: [[NOBODY], [NOBODY]], ValueError, "got a list without any message"),
    "tensordict of placeholders": (
        lambda: batch(history([NOBODY], [NOBODY]), reward=torch.ones(2, 1)),
        ValueError,
        "got a TensorDict without any message",
    ),
    "generator": (lambda: (message for message in HELLO), TypeError, r"\(generator\): make a list of it"),
    "view": (lambda: {0: HELLO}.values(), TypeError, r"\(dict_values\): make a list of it"),
    "role of None": (
        lambda: [HELLO[0], {"role": None, "content": "x"}],
        ValueError,
        r"message 1 has no role, got \{'role': None, 'content': 'x'\} \(dict\): give it a 'role'",
    ),
    "no steps": (lambda: control(0), ValueError, r"at least one step, got one of batch size \(0,\)"),
    "no environments": (lambda: control(0, 5), ValueError, r"at least one step, got one of batch size \(0, 5\)"),
    "padding alone": (
        lambda: TensorDict(reward=torch.ones(2, 3), mask=torch.zeros(2, 3).bool(), batch_size=(2, 3)),
        ValueError,
        r"at least one step, got one of batch size \(2, 3\)",
    ),
    "no conversations": (
        lambda: TensorDict(chat=ChatHistory(batch_size=(0, 2)), batch_size=(0, 2)),
        ValueError,
        r"got a TensorDict of batch size \(0, 2\), which holds none",
    ),
    "no role": (lambda: [{"content": "x"}], ValueError, r"message 0 has no role, got \{'content': 'x'\}"),
    "empty ChatHistory": (lambda: ChatHistory(batch_size=(1,)), ValueError, "set its full, or its prompt and response"),
    "tensordict of neither": (
        lambda: TensorDict(observation=torch.zeros(3, 2), batch_size=(3,)),
        ValueError,
        r"'reward' or 'action', got one of batch size \(3,\) with \['observation'\]",
    ),
}


@pytest.mark.parametrize(("build", "error", "said"), WRONG.values(), ids=WRONG)
def test_wrong_input(logger: TrackioLogger, build: Callable[[], Any], error: type[Exception], said: str) -> None:
    """Errors at the call say what is taken and what was got; nothing is stored."""
    with pytest.raises(error, match=said):
        logger.log_trace("wrong", build())
    assert stored(logger, "wrong") == []


def test_wrong_metadata(logger: TrackioLogger) -> None:
    """Metadata is a mapping."""
    with pytest.raises(TypeError, match=r"a trace's metadata is a mapping, got \[1\]"):
        logger.log_trace("wrong", HELLO, metadata=[1])


def test_torchrl_s_llm_modules_are_not_imported(tmp_path: Path) -> None:
    """Who logs episodes and lists of messages does not pay for the import."""
    done = Child(tmp_path).run("""
        from tensordict import TensorDict
        logger.log_trace("chat", [{"role": "user", "content": "Hello"}])
        logger.log_trace("episode", TensorDict(reward=torch.ones(3, 1), batch_size=(3,)))
        assert not [name for name in sys.modules if name.startswith("torchrl.modules.llm")]
    """)
    assert done.returncode == 0, done.stderr


COSTS: dict[str, tuple[Callable[[], Any], float]] = {
    "64 conversations": (lambda: history(*[SUM] * 64), 0.2),
    "500 steps": (lambda: control(500), 0.2),
    "64 environments": (lambda: control(64, 200), 1.0),
    "1024 environments": (lambda: control(1024, 200), 1.0),
    "100,000 steps of a row": (lambda: control(100_000), 0.2),
    "100,000 episodes of a row": (lambda: control(100_000, done=True), 0.5),
    "512 conversations with token ids": (
        lambda: TensorDict(
            history=history(*[HELLO] * 512),
            ids=torch.ones(512, 4096).long(),
            reward=torch.ones(512, 4096),
            advantage=torch.arange(4096.0).expand(512, -1),
            batch_size=(512,),
        ),
        1.5,
    ),
}


@pytest.mark.filterwarnings("ignore:log_trace stores the first 32 episodes")
@pytest.mark.parametrize(("build", "most"), COSTS.values(), ids=COSTS)
def test_what_a_call_costs(logger: TrackioLogger, build: Callable[[], Any], most: float) -> None:
    """The calling thread computes for no more than that many seconds: on an idle machine, for a tenth of it."""
    trace, name, costs = build(), reading.new_name(), []
    for _ in range(3):
        start = time.thread_time()
        logger.log_trace(name, trace)
        costs.append(time.thread_time() - start)
    assert min(costs) < most


def test_what_the_dashboard_shows(project: str, page: Any) -> None:
    """The list shows question and answer or an episode's length and return; opened, the tool's call and the steps."""
    with TrackioLogger("run", project) as logger:
        logger.log_trace("chat", batch(history(SUM, HELLO), reward=torch.tensor([[1.0], [0.25]])), step=1)
        logger.log_trace("episode", cartpoles(5).rollout(5), step=2)
    server = Server(reading.folder())
    server.start()
    try:
        page.goto(f"{server.url}/traces?project={project}")
        row = page.locator("tr.trace-row", has_text="What is 17 + 25?")
        row.get_by_text("I add.").wait_for()
        row.click()
        page.get_by_text("reward: 1").wait_for()
        expect(page.locator(".operation-header")).to_have_text(re.compile(r"^\s*TOOL\s*add\b"), use_inner_text=True)
        expect(page.locator(".io-grid pre")).to_have_text(['{ "a": 17, "b": 25 }', "42"])
        page.get_by_text("Conversation").click()
        page.locator(".message").get_by_text("It is 42.").wait_for()
        row.click()
        episode = page.locator("tr.trace-row", has_text="Episode of 5 steps").first
        expect(episode).to_contain_text("return 5, truncated")
        expect(episode.locator(".status-pill")).to_have_text("truncated", ignore_case=True)
        episode.click()
        page.get_by_text("step 4: reward 1").click()
        expect(page.locator(".io-grid pre").last).to_contain_text('"truncated": true')
    finally:
        server.kill()
