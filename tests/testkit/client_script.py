"""The conversation that real clients are put through: it asks for the weather, runs one tool, reads an answer."""

from __future__ import annotations

from typing import Any

QUESTION = "Weather in Oslo?"
THOUGHT = "I should look it up."
BEFORE_CALL = "Let me look."
ANSWER = "It is 4 degrees in Oslo."
GREETING = "Hello there."
RESULT = "4 degrees"


def tool_call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def weather_script() -> list[dict[str, Any]]:
    """Reasoning, text and a call of `weather` on the question; the answer after its result; a greeting otherwise."""
    call = tool_call("weather", '{"city": "Oslo"}')
    return [
        {"text": ANSWER, "match": {"last_role": "tool", "contains": RESULT}, "chunk": "char", "repeat": True},
        {
            "text": f"<think>\n{THOUGHT}\n</think>\n{BEFORE_CALL}\n{call}",
            "match": {"last_role": "user", "contains": QUESTION},
            "chunk": "char",
            "repeat": True,
        },
        {"text": GREETING, "match": {"last_role": "user"}, "repeat": True},
    ]


PROOF = "proof.txt"
SHELL_COMMAND = f"echo done > {PROOF} && cat {PROOF}"
AGENT_ANSWER = "The command has run."


def agent_script(name: str, arguments: str) -> list[dict[str, Any]]:
    """For command-line agents, which bring their own tools: a call of one of them on any question, and the answer after
    its result. What agents ask on the side (titles, summaries) gets the call as well; they drop it."""
    call = f"{BEFORE_CALL}\n{tool_call(name, arguments)}"
    return [
        {"text": AGENT_ANSWER, "match": {"last_role": "tool", "contains": "done"}, "repeat": True},
        {"text": call, "chunk": "char", "repeat": True},
    ]
