"""Checks of Python clients against a worker. Runs in an environment of the clients, so it imports nothing of Suffolk.

python tests/clients/checks.py URL MODEL_FOLDER [CLIENT ...]      URL: of the worker, without /v1

Prints a line of JSON for each check: client, version, check, error (empty if it passed).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

TASK = """
task: {kind}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: {kind}
{doc}
metric_list: [{{metric: {metric}}}]
"""
QUESTION = "Is it sunny today? Answer briefly."
THOUGHT: Any = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "<think>The user asks"}]
"""The model goes on inside a thought, as a reasoning model would. The worker is told the marks."""
CONTINUED = {"continue_final_message": True, "add_generation_prompt": False}
MOST = 600
"""Tokens of structured answers: a random model puts much white space into JSON."""


class Weather(BaseModel):
    """The weather of some days."""

    sunny: bool
    days: Literal[1, 2, 3]


PARAMETERS = Weather.model_json_schema() | {"additionalProperties": False}
TOOL: Any = {"type": "function", "function": {"name": "weather", "description": "Forecast.", "parameters": PARAMETERS}}


class Worker:
    """The worker that is checked."""

    def __init__(self, url: str, folder: str) -> None:
        self.root, self.url, self.folder, self.key = url, f"{url}/v1", folder, "none"
        self.model = self._openai().models.list().data[0].id

    def _openai(self) -> Any:
        import openai

        return openai.OpenAI(base_url=self.url, api_key=self.key, max_retries=0)


def check_openai(worker: Worker) -> Iterator[tuple[str, Callable[[], Any]]]:
    import openai

    client = openai.OpenAI(base_url=worker.url, api_key=worker.key, max_retries=0)
    asked: Any = {
        "model": worker.model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 20,
        "temperature": 0,
    }
    answered: Any = {"model": worker.model, "input": QUESTION, "max_output_tokens": MOST, "temperature": 0}

    def chat() -> None:
        assert client.chat.completions.create(**asked).usage.total_tokens > 20

    def stream() -> None:
        chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        assert chunks[-1].usage.completion_tokens <= 20

    def tools() -> None:
        one: Any = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": MOST}
        with client.chat.completions.stream(**asked | one) as found:
            [call] = found.get_final_completion().choices[0].message.tool_calls[:1]
        Weather.model_validate_json(call.function.arguments)

    def functions() -> None:
        own: Any = {"functions": [TOOL["function"]], "function_call": {"name": "weather"}, "max_tokens": MOST}
        call = client.chat.completions.create(**asked | own).choices[0].message.function_call
        Weather.model_validate_json(call.arguments)

    def parse() -> None:
        found = client.chat.completions.parse(**asked | {"max_tokens": MOST}, response_format=Weather)
        assert isinstance(found.choices[0].message.parsed, Weather)

    def echo() -> None:
        found = client.completions.create(model=worker.model, prompt=QUESTION, max_tokens=0, echo=True, logprobs=1)
        assert found.choices[0].text == QUESTION
        assert all(value <= 0 for value in found.choices[0].logprobs.token_logprobs[1:])

    def reasoning() -> None:
        thought = asked | {"messages": THOUGHT, "extra_body": CONTINUED}
        message = client.chat.completions.create(**thought).choices[0].message
        parts = [chunk.choices[0].delta for chunk in client.chat.completions.create(**thought, stream=True)]
        assert message.reasoning_content
        assert not message.content
        assert "".join(getattr(part, "reasoning_content", "") for part in parts) == message.reasoning_content

    def responses() -> None:
        assert isinstance(client.responses.parse(**answered, text_format=Weather).output_parsed, Weather)

    def responses_stream() -> None:
        tool = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}
        one: Any = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
        with client.responses.stream(**answered | one) as found:
            call = found.get_final_response().output[0]
        Weather.model_validate_json(call.arguments)

    def errors() -> None:
        codes = []
        try:
            client.chat.completions.create(**asked | {"messages": [{"role": "user", "content": "long " * 50_000}]})
        except openai.BadRequestError as error:
            codes = [error.code, error.param]
        assert codes == ["context_length_exceeded", "messages"]

    yield from _named(chat, stream, tools, functions, parse, echo, reasoning, responses, responses_stream, errors)


def check_litellm(worker: Worker) -> Iterator[tuple[str, Callable[[], Any]]]:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # read at the import, which would fetch it
    import litellm

    asked: Any = {
        "model": f"openai/{worker.model}",
        "api_base": worker.url,
        "api_key": worker.key,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 20,
        "temperature": 0,
    }

    def chat() -> None:
        assert litellm.completion(**asked).usage.completion_tokens <= 20

    def stream() -> None:
        assert list(litellm.completion(**asked, stream=True))

    def tools() -> None:
        found = litellm.completion(**asked | {"max_tokens": MOST}, tools=[TOOL], tool_choice="required")
        Weather.model_validate_json(found.choices[0].message.tool_calls[0].function.arguments)

    def reasoning() -> None:
        message = litellm.completion(**asked | {"messages": THOUGHT}, extra_body=CONTINUED).choices[0].message
        assert message.reasoning_content
        assert not message.content

    def responses() -> None:
        own = {name: asked[name] for name in ("model", "api_base", "api_key")}
        assert litellm.responses(**own, input=QUESTION, max_output_tokens=20).output

    def context_error() -> None:
        try:
            litellm.completion(**asked | {"messages": [{"role": "user", "content": "long " * 50_000}]})
        except litellm.ContextWindowExceededError:
            return
        raise AssertionError("no ContextWindowExceededError")

    yield from _named(chat, stream, tools, reasoning, responses, context_error)


def check_langchain(worker: Worker) -> Iterator[tuple[str, Callable[[], Any]]]:
    from langchain_openai import ChatOpenAI

    def model(**more: Any) -> Any:
        return ChatOpenAI(
            base_url=worker.url, api_key=worker.key, model=worker.model, temperature=0, max_retries=0, **more
        )

    def chat() -> None:
        assert model(max_tokens=20).invoke(QUESTION).usage_metadata["output_tokens"] <= 20

    def stream() -> None:
        assert list(model(max_tokens=20).stream(QUESTION))

    def tools() -> None:
        found = (
            model(max_tokens=MOST).bind_tools([Weather], tool_choice="any", parallel_tool_calls=False).invoke(QUESTION)
        )
        Weather.model_validate(found.tool_calls[0]["args"])

    def structured() -> None:
        assert isinstance(model(max_tokens=MOST).with_structured_output(Weather).invoke(QUESTION), Weather)

    def responses() -> None:
        found = model(max_tokens=20, use_responses_api=True).invoke([("system", "Be brief."), ("user", QUESTION)])
        assert found.usage_metadata["output_tokens"] <= 20

    yield from _named(chat, stream, tools, structured, responses)


def check_llama_index(worker: Worker) -> Iterator[tuple[str, Callable[[], Any]]]:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike

    own: Any = {
        "api_base": worker.url,
        "api_key": worker.key,
        "model": worker.model,
        "max_retries": 0,
        "temperature": 0,
    }
    model = OpenAILike(**own, is_chat_model=True, is_function_calling_model=True, max_tokens=20)
    messages = [ChatMessage(role="user", content=QUESTION)]

    def complete() -> None:
        assert OpenAILike(**own, is_chat_model=False, max_tokens=20).complete(QUESTION).raw

    def chat() -> None:
        assert model.chat(messages).raw

    def stream() -> None:
        assert list(model.stream_chat(messages))

    def tools() -> None:
        def weather(sunny: bool, days: int) -> str:
            """Forecast."""
            return f"{sunny} {days}"

        longer = OpenAILike(**own, is_chat_model=True, is_function_calling_model=True, max_tokens=MOST)
        tool = FunctionTool.from_defaults(weather)
        found = longer.chat_with_tools([tool], user_msg=QUESTION, tool_required=True)
        assert longer.get_tool_calls_from_response(found)[0].tool_name == "weather"

    yield from _named(complete, chat, stream, tools)


def check_instructor(worker: Worker) -> Iterator[tuple[str, Callable[[], Any]]]:
    import instructor
    import openai

    def ask(mode: Any) -> None:
        client = openai.OpenAI(base_url=worker.url, api_key=worker.key, max_retries=0)
        found = instructor.from_openai(client, mode=mode).chat.completions.create(
            model=worker.model,
            messages=[{"role": "user", "content": QUESTION}],
            response_model=Weather,
            max_tokens=MOST,
            temperature=0,
            max_retries=0,
        )
        assert isinstance(found, Weather)

    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        yield mode.value, lambda mode=mode: ask(mode)


def check_pydantic_ai(worker: Worker) -> Iterator[tuple[str, Callable[[], Any]]]:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=worker.url, api_key=worker.key)

    def agent(kind: Any, most: int, **more: Any) -> Any:
        settings: Any = {"max_tokens": most, "temperature": 0}
        model = kind(worker.model, provider=provider, settings=settings)
        return Agent(model, instructions="Be brief.", retries=0, **more)

    def chat() -> None:
        assert agent(OpenAIChatModel, 20).run_sync(QUESTION).usage.output_tokens <= 20

    def output() -> None:
        found = agent(OpenAIChatModel, MOST, output_type=Weather).run_sync(QUESTION)
        assert isinstance(found.output, Weather)

    def responses() -> None:
        found = agent(OpenAIResponsesModel, MOST, output_type=Weather)
        assert isinstance(found.run_sync(QUESTION).output, Weather)

    yield from _named(chat, output, responses)


def check_lm_eval(worker: Worker) -> Iterator[tuple[str, Callable[[], Any]]]:
    choice = 'doc_to_text: "{{text}}"\ndoc_to_choice: ["Paris", "a banana"]\ndoc_to_target: 0'
    whole = 'doc_to_text: ""\ndoc_to_target: "{{text}}"'

    def run(kind: str, metric: str, doc: str) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            rows = [{"text": "The capital of France is"}, {"text": "The Eiffel Tower stands in"}] * 2
            (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            (folder / "task.yaml").write_text(
                TASK.format(kind=kind, metric=metric, doc=doc, rows=folder / "rows.jsonl")
            )
            model = f"model={worker.model},base_url={worker.url}/completions,num_concurrent=2,max_retries=1"
            words = ("run", "--model", "local-completions", "--model_args", f"{model},tokenizer={worker.folder}")
            more = ("--tasks", kind, "--include_path", name, "--output_path", f"{name}/out")
            program = Path(sys.executable).with_name("lm-eval")
            subprocess.run([program, *words, *more], check=True, capture_output=True, text=True)
            [result] = (folder / "out").rglob("results_*.json")
            found = json.loads(result.read_text())["results"][kind]
            assert found[f"{metric},none"] >= 0, found

    yield "multiple choice", lambda: run("multiple_choice", "acc", choice)
    yield "perplexity", lambda: run("loglikelihood_rolling", "word_perplexity", whole)


CHECKS = {
    "openai": ("openai", check_openai),
    "litellm": ("litellm", check_litellm),
    "langchain": ("langchain-openai", check_langchain),
    "llama-index": ("llama-index-llms-openai-like", check_llama_index),
    "instructor": ("instructor", check_instructor),
    "pydantic-ai": ("pydantic-ai-slim", check_pydantic_ai),
    "lm-eval": ("lm-eval", check_lm_eval),
}
"""Client -> its package and its checks."""


def main(url: str, folder: str, *clients: str) -> None:
    worker = Worker(url, folder)
    for client in clients or CHECKS:
        package, checks = CHECKS[client]
        version = importlib.metadata.version(package)
        for name, check in checks(worker):
            error = ""
            try:
                check()
            except Exception as found:  # noqa: BLE001  # all checks run
                error = repr(found)[:300]
                traceback.print_exc()
                sys.stderr.write(str(getattr(found, "stderr", "")))
            print(json.dumps({"client": package, "version": version, "check": name, "error": error}), flush=True)


def _named(*checks: Callable[[], Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for check in checks:
        yield check.__name__.replace("_", " "), check


if __name__ == "__main__":
    main(*sys.argv[1:])
