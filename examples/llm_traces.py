"""The loop of GRPO on a chat environment with a tool; Trackio shows the curves and the conversations behind them.

A stub stands in for the language model, so that it runs in seconds on a CPU, with nothing to download:
``python examples/llm_traces.py``, then ``trackio show --project arithmetic`` and its page Traces.
"""

from __future__ import annotations

import argparse

import torch
from tensordict import TensorDict, TensorDictBase, lazy_stack, set_list_to_stack
from torchrl.data.llm import History
from torchrl.envs import Transform, TransformedEnv
from torchrl.envs.llm import ChatEnv

from torchrl_trackio import TrackioLogger

set_list_to_stack(True).set()  # torchrl's History asks for it


def extended(history: History, chats: list[list[dict[str, object]]]) -> History:
    """Each conversation with its further messages; ``History.extend`` needs all to have tool calls, or none."""
    further = History.from_chats(chats)
    pairs = zip(history.unbind(0), further.unbind(0), strict=True)
    return lazy_stack([lazy_stack([*before.unbind(0), *after.unbind(0)]) for before, after in pairs])


class Calculator(Transform):
    """Answers the tool calls of the first turn, and rewards the answers of the second."""

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        full, rewards, results = tensordict["history"].full, [], []
        for conversation in full.unbind(0):
            *_, last = conversation.unbind(0)
            if last.tool_calls is not None:
                arguments = last.tool_calls[0]["function"]["arguments"]
                results.append([{"role": "tool", "content": str(arguments["a"] + arguments["b"])}])
                rewards.append(0.0)
            else:
                a, _, b = conversation[1].content.removesuffix("?").split()[-3:]
                rewards.append(float(last.content == f"It is {int(a) + int(b)}."))
        if results:
            next_tensordict["history"].prompt = extended(full, results)
        next_tensordict["reward"] = torch.tensor(rewards)[:, None]
        return next_tensordict


class StubPolicy:
    """Calls the calculator, and gets its answers wrong at a rate that training lowers."""

    error_rate = 0.8

    def __call__(self, td: TensorDictBase) -> TensorDictBase:
        """Respond to each conversation, as torchrl's wrappers of language models do."""
        chat = td["history"]
        responses = [[self.respond(prompt)] for prompt in chat.prompt.unbind(0)]
        chat.response, chat.full = History.from_chats(responses), extended(chat.prompt, responses)
        return td.set("history", chat)

    def respond(self, prompt: History) -> dict[str, object]:
        """The next message of a conversation."""
        last = prompt[-1]
        if last.role == "tool":
            wrong = torch.rand(()).item() < self.error_rate
            return {"role": "assistant", "content": f"It is {int(last.content) + wrong}."}
        a, _, b = last.content.removesuffix("?").split()[-3:]
        function = {"name": "add", "arguments": {"a": int(a), "b": int(b)}}
        return {"role": "assistant", "content": "", "tool_calls": [{"id": "call-0", "function": function}]}


def main() -> None:
    """Train, and say how to see it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", default="arithmetic", help="Trackio's project")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--group", type=int, default=4, help="answers to each question, whose rewards are compared")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    policy = StubPolicy()
    env = ChatEnv(system_prompt="Use the calculator.", batch_size=(2 * args.group,))
    env = TransformedEnv(env, Calculator())
    with TrackioLogger(f"grpo-seed-{args.seed}", project=args.project) as logger:
        logger.log_hparams(vars(args))
        for iteration in range(args.iterations):
            questions = [f"What is {a} + {b}?" for a, b in torch.randint(1, 100, (2, 2)).tolist()]
            queries = [question for question in questions for _ in range(args.group)]
            start = env.reset(TensorDict(query=queries, batch_size=env.batch_size))
            batch = env.rollout(2, policy, auto_reset=False, tensordict=start)
            returns = batch["next", "reward"].sum(1).view(2, args.group)
            advantage = (returns - returns.mean(1, keepdim=True)) / (returns.std(1, keepdim=True) + 1e-6)
            batch["advantage"] = advantage.view(-1, 1, 1).expand(-1, 2, 1)
            policy.error_rate *= 0.8  # where a GRPOLoss would be minimised
            metrics = {"reward": returns.mean(), "advantage": advantage, "error_rate": policy.error_rate}
            logger.log_metrics({"train": metrics}, step=iteration)
            logger.log_trace("conversations", batch, step=iteration)
    print(f"See the conversations on the page Traces of\n  trackio show --project {args.project}")


if __name__ == "__main__":
    main()
