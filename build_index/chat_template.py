"""Renders a conversation with a model's chat template, without transformers."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from suffolk.build_index.conversation import Message
from suffolk.build_index.message_forms import generic_messages, lacks_tools, simpler_forms
from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.datastore.hub import model_file

if TYPE_CHECKING:
    from jinja2 import Environment, Template, nodes
    from jinja2.parser import Parser

TEMPLATE_FILE, CONFIG_FILE, OLD_FILE = "chat_template.jinja", "tokenizer_config.json", "chat_template.json"
TOOLS_FILE = "additional_chat_templates/tool_use.jinja"
DEFAULT, WITH_TOOLS = "default", "tool_use"


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A chat template. Thread-safe, and can be pickled.

    Attributes:
        sources: Jinja sources by name; most models have only ``default``.
        tokens: special tokens by name, for example ``bos_token``. Templates insert them into the text.
    """

    sources: Mapping[str, str]
    tokens: Mapping[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the sources and tokens."""
        content = json.dumps([dict(self.sources), dict(self.tokens)], sort_keys=True)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()

    def render(self, messages: Sequence[Message], tools: Sequence[Any] = (), asking: bool = False) -> str:
        """Render a conversation as text, with special tokens.

        Args:
            tools: JSON schemas of the tools that the model may call.
            asking: whether the text ends with the header of the model's next answer.

        Raises:
            InvalidArgument: the template rejects the conversation and its simpler forms. The error holds only the reason.
        """
        name = WITH_TOOLS if tools and WITH_TOOLS in self.sources else DEFAULT
        template = _compile(self.sources[name])
        if lacks_tools(" ".join(self.sources.values()), tools):  # then tools are text, as in the worker's prompts
            messages, tools = generic_messages(messages, tools), ()
        given = {"tools": list(tools) or None, "documents": None, "add_generation_prompt": asking, **self.tokens}
        refusals: list[Exception] = []
        for form in simpler_forms([dict(message) for message in messages]):
            try:
                return template.render(messages=form, **given)
            except Exception as error:  # noqa: BLE001 - a template is a program, which can raise any exception
                refusals.append(error)
        reason = " ".join(str(refusals[0]).split())[:160]
        raise InvalidArgument(f"the chat template rejects it ({reason})") from refusals[0]


def find_chat_template(name_or_path: str | Path) -> ChatTemplate | None:
    """Load the chat template of a model folder, of the folder of a ``tokenizer.json``, or of a hub name. None if there is none.

    Raises:
        Corruption: the template's files cannot be read, or the template is not valid Jinja.
    """
    config = _read_json(name_or_path, CONFIG_FILE)
    written = model_file(name_or_path, TEMPLATE_FILE)
    found = config.get("chat_template") or _read_json(name_or_path, OLD_FILE).get("chat_template")
    if written is not None:
        found = written.read_text(encoding="utf-8-sig")
    if isinstance(found, list):
        found = {str(each.get("name")): each.get("template") for each in found if isinstance(each, dict)}
    named = found if isinstance(found, dict) else {DEFAULT: found}
    if (more := model_file(name_or_path, TOOLS_FILE)) is not None:  # newer folders have it beside TEMPLATE_FILE
        named = named | {WITH_TOOLS: more.read_text(encoding="utf-8-sig")}
    sources = {str(name): source for name, source in named.items() if isinstance(source, str)}
    if DEFAULT not in sources:
        return None
    from jinja2 import TemplateSyntaxError

    try:
        for source in sources.values():
            _compile(source)
    except TemplateSyntaxError as error:
        raise Corruption(
            f"tokenizer {name_or_path}: its chat template is not valid Jinja ({error}); correct it"
        ) from error
    return ChatTemplate(sources, {key: text for key, value in config.items() if (text := _token(key, value))})


def _token(key: str, value: Any) -> str | None:
    """The text of a special token in a tokenizer's configuration, which is a string or an object with ``content``."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if key.endswith("_token") and isinstance(content, str) else None


def _read_json(name_or_path: str | Path, file: str) -> dict[str, Any]:
    path = model_file(name_or_path, file)
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Corruption(f"{path}: not JSON ({error}); fetch it again") from error
    return found if isinstance(found, dict) else {}


@functools.lru_cache(maxsize=8)
def _compile(source: str) -> Template:
    return _environment().from_string(source)


@functools.cache
def _environment() -> Environment:
    """The Jinja environment that transformers documents for chat templates.

    It is sandboxed, because templates are programs.
    """
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationBlock(Extension):
        """``{% generation %}``, which marks answers for training. Here only its content is rendered."""

        tags = {"generation"}

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
    environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    return environment


def _refuse(reason: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(reason)
