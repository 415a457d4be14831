"""The names, one-line helps and modules of the commands."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from suffolk.datastore.checks import nearest
from suffolk.datastore.errors import InvalidArgument

COMMANDS = {
    "demo": "see what Suffolk does on this machine, with a small model and the Python source here",
    "build": "build a datastore from corpora",
    "info": "show what a datastore holds",
    "verify": "check a datastore for damage",
    "lookup": "look a text up in a datastore, on disk or in a draft service",
    "delete": "delete documents from a datastore",
    "compact": "merge a datastore's segments and remove deleted documents",
    "snapshot": "copy a datastore while it is served",
    "split": "split a datastore into shards for several servers",
    "push": "publish a datastore in object storage",
    "pull": "copy a datastore from object storage",
    "generations": "list a datastore's generations in object storage, and roll back",
    "serve": "serve datastores over gRPC",
    "promote": "let a copy of a live datastore lead, or show the state of its copies",
    "generate": "generate text with drafts",
    "worker": "decode for many clients over gRPC",
    "cluster up": "start store servers, workers and a front on Ray",
    "cluster status": "show the servers of a cluster, their load and generations",
    "cluster update": "change a running cluster, one server at a time",
    "cluster scale": "change how many workers and store servers run",
    "cluster down": "stop a cluster",
    "token add": "add a token to a server's access file",
    "token list": "list the tokens of an access file",
    "token remove": "remove a token from an access file",
    "config show": "print the settings of a command, and the origin of each setting",
    "calibration": "show how well acceptance is predicted",
    "replay": "compare drafters on recorded texts",
    "profile": "measure what a model's passes or a datastore's service cost on this device",
    "capacity": "plan the nodes for a datastore and a load",
    "hierarchy plan": "plan a hierarchy of drafters from measured costs and rates",
    "train": "train a draft head for a model",
    "bench retrieval": "measure the latency of lookups and drafts, in-process and over gRPC",
    "bench service": "measure latency, throughput and overload of a draft service",
    "bench counts": "compare the speed of counting and the bytes per token with infini-gram",
    "bench decode": "compare each drafter with plain decoding",
    "bench batch": "measure the engine's throughput by batch size",
    "bench worker": "measure what HTTP and gRPC cost, compared to calls in the worker's process",
    "bench build": "measure the throughput and memory of building a datastore, and of its sort",
    "bench memory": "measure a datastore larger than memory",
    "bench live": "measure insertion, memory and drafts of an index that grows",
    "bench prediction": "measure the speed-up that predicted texts give",
    "bench rollouts": "measure drafts from earlier answers to the same prompts",
    "bench agents": "measure edits of the same files in several sessions",
}
"""Map from a command's name to its one-line help."""
FILES = {
    "storage": ("push", "pull", "generations"),
    "folders": ("info", "verify", "snapshot", "split", "compact"),
    "cluster": tuple(name for name in COMMANDS if name.startswith("cluster ")),
    "token": tuple(name for name in COMMANDS if name.startswith("token ")),
    "bench.of_datastores": tuple(
        f"bench {each}" for each in ("retrieval", "service", "counts", "build", "memory", "live")
    ),
    "bench.of_decoding": tuple(f"bench {each}" for each in ("batch", "worker", "prediction", "rollouts", "agents")),
}
"""Map from a module to its commands. Its ``COMMANDS`` maps their last words to options. Other commands have own modules."""
DESCRIPTION = "Suffolk makes a language model decode faster by drafting from text on file."
EXAMPLES = """examples:
  suffolk build --tokenizer MODEL_FOLDER --output STORE corpus/ more.jsonl.zst
  suffolk info STORE
  suffolk lookup STORE "def __init__(self"
  suffolk serve STORE --listen 127.0.0.1:7700
  suffolk generate --model MODEL_FOLDER --datastore grpc://127.0.0.1:7700/STORE "Write a sort function."
  suffolk worker --model MODEL_FOLDER --datastore STORE --listen 127.0.0.1:7710"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        help: the text of its page.
        examples: command lines, with remarks.
        options: the class of its options.
        run: returns the exit code; None is 0.
        run_words: called with the words of the command line, before they are read as options. If it returns None, ``run`` follows.
            None: only ``run`` is called.
    """

    help: str
    examples: str
    options: Any
    run: Callable[[Any], int | None]
    run_words: Callable[[Sequence[str]], int | None] | None = None


def split_command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command that ``words`` begin with, and the remaining words. Raises InvalidArgument if there is no such command."""
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in COMMANDS:
            return name, words[length:]
    group = _group(words[0])
    if group:
        if len(words) > 1:
            near = nearest(words[1], [name.split()[1] for name in group]) or f"; use {', '.join(group)}"
            raise InvalidArgument(f"unknown command {' '.join(words[:2])}{near}")
        raise InvalidArgument(
            f"{words[0]} needs one of its commands: {', '.join(group)}; see 'suffolk {words[0]} --help'"
        )
    kind, known = ("option", ("--help", "--version")) if words[0].startswith("-") else ("command", tuple(COMMANDS))
    raise InvalidArgument(f"unknown {kind} {words[0]}{nearest(words[0], known)}; see 'suffolk --help'")


def find_command(name: str) -> Command:
    """The command ``name``. The command imports torch only when it runs."""
    for file, names in FILES.items():
        if name in names:
            options = importlib.import_module(f"suffolk.cli.{file}").COMMANDS[name.split()[-1]]
            return Command(inspect.getdoc(options) or "", options.EXAMPLES, options, options.run)
    module = importlib.import_module(f"suffolk.cli.{name.replace(' ', '.')}")
    run_words = getattr(module, "run_words", None)
    return Command(module.__doc__ or "", module.EXAMPLES, module.Options, module.run, run_words)


def overview(words: Sequence[str]) -> str | None:
    """The list of all commands, or of a group such as bench; None if ``words`` do not ask for a list."""
    first = words[0] if words else "--help"
    if first in ("-h", "--help"):
        return _overview("suffolk COMMAND", DESCRIPTION, list(COMMANDS), EXAMPLES)
    if _group(first) and words[1:2] in (["-h"], ["--help"]):
        package = importlib.import_module(f"suffolk.cli.{first}")
        return _overview(
            f"suffolk {first} COMMAND", package.__doc__ or "", _group(first), getattr(package, "EXAMPLES", "")
        )
    return None


def _group(word: str) -> list[str]:
    return [name for name in COMMANDS if name.startswith(f"{word} ")]


def _overview(usage: str, description: str, names: Sequence[str], examples: str) -> str:
    width = max(map(len, names)) + 2
    lines = [f"usage: {usage} [OPTIONS]", "", description.strip(), "", "commands:"]
    lines += [f"  {name:<{width}}{COMMANDS[name]}" for name in names]
    lines += ["", examples] if examples else []
    return "\n".join([*lines, "", "'suffolk COMMAND --help' shows the options of a command and examples."])
