"""A public yardstick: what of rules, facts, goals and preferences survives five compactions, by `compaction-conformance-kit`.

The kit plants statements ("canaries") amid filler and counts those that are still there, word for word where it matters. Its turns become one
round here: the session's task is the request, each further turn is a finished tool call whose result is the turn (turns of the user are
answers to `ask_user`), and in later rounds our own block comes back as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.graph.message import add_messages

from langgraph_roundcompact import RoundCompactConfig, RoundCompactNode, RoundCompactor
from langgraph_roundcompact.testing import ScriptedChatModel

kit = pytest.importorskip("compaction_kit", reason="pip install compaction-conformance-kit==0.8.0 (dependency group `test`)")
from compaction_kit.compacted import CompactedContext  # noqa: E402
from compaction_kit.corpus import build_random_session  # noqa: E402
from compaction_kit.runner import run_conformance  # noqa: E402
from compaction_kit.session import build_seeded_session  # noqa: E402

ROUNDS = 5
NOTHING = "<coverage_check>\nok\n</coverage_check>\n<state_snapshot>\n### 1. Active Task\nContinue.\n</state_snapshot>"


def tokens(messages: Sequence[BaseMessage]) -> int:
    """Four characters a token: the unit in which the kit's budget is given."""
    return sum(-(-len(message.text) // 4) for message in messages)


class OneRound:
    """The kit's compactor: a session as one round of an agent."""

    name = "langgraph-roundcompact"

    def __init__(self, model: BaseChatModel | None) -> None:
        self.model = model
        self.messages: list[BaseMessage] = []

    def compact(self, turns: Sequence[Any], round_num: int, budget_chars: int) -> CompactedContext:
        if round_num == 1:
            self.messages = as_round(turns)
        else:
            assert [turn.text for turn in turns] == [self.after_request()]
        config = RoundCompactConfig(
            context_window_tokens=100_000,
            trigger_token_threshold=1,
            min_target_context_ratio=0.0,
            keep_recent_messages=0,
            round_budget_tokens=budget_chars // 4,
        )
        update = RoundCompactNode(RoundCompactor(self.model, config=config, token_counter=tokens)).invoke({"messages": self.messages})
        if update:
            self.messages = list(add_messages(self.messages, update["messages"]))  # type: ignore[arg-type]
        return CompactedContext(text=self.after_request(), compactor_name=self.name, round_num=round_num)

    def after_request(self) -> str:
        return "\n".join(message.text for message in self.messages[1:])


def as_round(turns: Sequence[Any]) -> list[BaseMessage]:
    messages: list[BaseMessage] = [HumanMessage(turns[0].text, id="request")]
    for number, turn in enumerate(turns[1:]):
        name = "ask_user" if turn.role == "user" else turn.role
        messages.append(AIMessage("", id=f"a{number}", tool_calls=[{"name": name, "args": {}, "id": f"c{number}"}]))
        messages.append(ToolMessage(turn.text, id=f"t{number}", tool_call_id=f"c{number}", name=name))
    return messages


def survival(share: float, *, with_model: bool) -> list[float]:
    """For each session the share of canaries that hold after the last round; budgets are asserted on the way."""
    sessions = [(build_seeded_session(), None), *(build_random_session(seed) for seed in range(1, 13))]
    shares = []
    for session, canaries in sessions:
        model = ScriptedChatModel(replies=[NOTHING]) if with_model else None
        run = run_conformance(session, OneRound(model), rounds=ROUNDS, canaries=canaries, budget_fraction=share)
        assert all(result.within_budget for result in run.rounds)
        held = run.rounds[-1].survived
        shares.append(sum(held.values()) / len(held))
    return shares


@pytest.mark.parametrize("with_model", [False, True], ids=["rules", "empty summary"])
def test_every_canary_survives_at_thirty_per_cent(with_model: bool) -> None:
    assert survival(0.30, with_model=with_model) == [1.0] * 13


@pytest.mark.parametrize("with_model", [False, True], ids=["rules", "empty summary"])
def test_three_of_four_canaries_survive_at_twenty_per_cent(with_model: bool) -> None:
    shares = survival(0.20, with_model=with_model)
    assert sum(shares) / len(shares) >= 0.75
