"""The tools of POST /v1/responses: functions, alone or in namespaces. Agents make a namespace of each MCP server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffolk.serving.net.http_body import InvalidField

_ELSEWHERE = frozenset(
    (
        *("apply_patch", "code_interpreter", "computer", "computer_use", "computer_use_preview", "custom"),
        *("file_search", "image_generation", "local_shell", "mcp", "namespace", "programmatic_tool_calling", "shell"),
        *("tool_search", "web_search", "web_search_preview"),
    )
)
"""Types of tools that OpenAI runs, or whose calls are not JSON. Agents such as Codex always name some of these tools beside their
functions."""
_DATE = re.compile(r"_\d{4}_\d{2}_\d{2}$")
"""End of the dated name of a type, such as web_search_2025_08_26."""
_OTHERS = ("allowed_callers", "defer_loading", "output_schema", "type")
"""Fields of a function that ``chat_tool`` leaves out."""


@dataclass(frozen=True, slots=True)
class ResponsesTool:
    """A tool of a request.

    Attributes:
        path: its path in the request.
        tool: as in the request.
        namespace: name of the namespace of the tool; empty for none.
    """

    path: str
    tool: Mapping[str, Any]
    namespace: str = ""

    @property
    def is_elsewhere(self) -> bool:
        """Whether the tool has one of the types in ``_ELSEWHERE``, so that the model cannot call it."""
        return _DATE.sub("", str(self.tool.get("type"))) in _ELSEWHERE

    def chat_tool(self) -> dict[str, Any]:
        """A function as a tool of POST /v1/chat/completions. Other tools keep their fields, and the check of the chat refuses them.

        Raises InvalidField: the function already has that form.
        """
        if self.tool.get("type") != "function":
            return {"type": None, **self.tool}
        if isinstance(self.tool.get("function"), Mapping):
            raise InvalidField(
                f"{self.path}.function",
                ": has the form of /v1/chat/completions; give name and parameters as fields of the tool",
            )
        function = {name: value for name, value in self.tool.items() if value is not None}
        if isinstance(self.tool.get("name"), str):
            function["name"] = self.full_name
        return {
            "type": "function",
            "function": {name: value for name, value in function.items() if name not in _OTHERS},
        }

    @property
    def full_name(self) -> str:
        return full_name(self.namespace, str(self.tool.get("name")))

    def names(self) -> dict[str, str]:
        """The fields by which a call names this tool."""
        name = {"name": str(self.tool.get("name"))}
        return name | {"namespace": self.namespace} if self.namespace else name


def full_name(namespace: str, name: str) -> str:
    """The name by which the model knows a function of ``namespace``. Agents without namespaces name MCP's tools like this."""
    return f"{namespace.rstrip('_')}__{name.lstrip('_')}" if namespace else name


def callable_tools(tools: Sequence[Mapping[str, Any]]) -> list[ResponsesTool]:
    """The tools that the client runs. If there are none, all tools, which the check of the chat then refuses."""
    return [each for each in _tools(tools) if not each.is_elsewhere] or [*_tools(tools)]


def shown_tools(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """``callable_tools`` in the form of the response: the functions of a namespace are together."""
    kept, found = callable_tools(tools), list[Mapping[str, Any]]()
    for at, tool in enumerate(tools):
        if any(each.path == f"tools[{at}]" for each in kept):
            found.append(tool)
        elif own := [each.tool for each in kept if each.path.startswith(f"tools[{at}].")]:
            found.append({**tool, "tools": own})
    return found


def _tools(tools: Sequence[Mapping[str, Any]]) -> Iterator[ResponsesTool]:
    """``tools``, in which each namespace is replaced by its functions."""
    for at, tool in enumerate(tools):
        path, inner = f"tools[{at}]", tool.get("tools")
        own = [each for each in inner if isinstance(each, Mapping)] if isinstance(inner, list) else []
        if tool.get("type") != "namespace" or not own or not isinstance(tool.get("name"), str):
            yield ResponsesTool(path, tool)
            continue
        for number, each in enumerate(own):
            yield ResponsesTool(f"{path}.tools[{number}]", each, str(tool["name"]))
