"""Reads functions of Python's standard library as material for prompts.

Names are changed, so that no corpus contains their text.
"""

from __future__ import annotations

import ast
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MODULES = (
    "argparse", "ast", "base64", "bisect", "calendar", "cmd", "codecs", "collections/__init__", "colorsys", "configparser",
    "contextlib", "copy", "csv", "dataclasses", "datetime", "difflib", "dis", "email/utils", "enum", "filecmp", "fileinput",
    "fnmatch", "fractions", "ftplib", "functools", "getopt", "getpass", "gettext", "glob", "graphlib", "gzip", "hashlib",
    "heapq", "html/__init__", "imaplib", "inspect", "ipaddress", "json/encoder", "keyword", "linecache", "locale", "mailbox",
    "mimetypes", "netrc", "nntplib", "ntpath", "numbers", "os", "pathlib", "pdb", "pickletools", "pkgutil", "platform", "plistlib",
    "posixpath", "pprint", "profile", "pyclbr", "queue", "quopri", "random", "reprlib", "sched", "shelve", "shlex", "shutil",
    "smtplib", "socket", "statistics", "string", "stringprep", "tarfile", "tempfile", "textwrap", "timeit", "token", "tokenize",
    "trace", "traceback", "turtle", "types", "unittest/util", "urllib/parse", "uuid", "warnings", "weakref", "webbrowser",
    "xml/dom/minidom", "zipfile", "zoneinfo/_common",
)  # fmt: skip
_LINES, _SUMMARY = range(6, 33), range(20, 100)
_WORDS = (
    "amount", "batch", "cursor", "entry", "flag", "given", "holder", "inner", "joined", "kind", "limit", "mark", "number", "outer",
    "piece", "quota", "rest", "seen", "table", "unit", "view", "width", "extra", "yard", "zone",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Function:
    """One function.

    Attributes:
        module: its module; ``name``: its name.
        code: its source with changed names of arguments and variables, without comments. The docstring is reduced to
            its first sentence.
        head: its first lines, up to the end of the docstring. ``summary``: the docstring's first sentence.
        variable: a variable or argument of the function; empty if there is none.
    """

    module: str
    name: str
    code: str
    head: str
    summary: str
    variable: str


@cache
def library_functions() -> tuple[Function, ...]:
    """The module functions of 6 to 32 lines with a short first docstring sentence, ordered by module and text."""
    library, found = Path(sysconfig.get_path("stdlib")), []
    for module in MODULES:
        path = library / f"{module}.py"
        if not path.is_file():
            continue  # some Python versions lack some modules
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                summary = _first_sentence(ast.get_docstring(node) or "")
                if len(summary) not in _SUMMARY:
                    continue
                function = _function(module.replace("/__init__", "").replace("/", "."), node, summary)
                if len(function.code.splitlines()) in _LINES:
                    found.append(function)
    return tuple(found)


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".") + "."


def _function(module: str, node: ast.FunctionDef, summary: str) -> Function:
    names = _own_names(node)
    begin = sum(map(ord, node.name))  # vary the names of first arguments
    changed = {name: _WORDS[(begin + at) % len(_WORDS)] for at, name in enumerate(names[: len(_WORDS)])}
    renamed = _Renamed(changed).visit(node)
    renamed.body[0] = ast.Expr(ast.Constant(summary))
    code = ast.unparse(renamed)
    head = ast.unparse(ast.FunctionDef(**(dict(ast.iter_fields(renamed)) | {"body": renamed.body[:1]}), lineno=1))
    return Function(module, node.name, code, head, summary, changed[names[0]] if names else "")


def _own_names(node: ast.FunctionDef) -> list[str]:
    """Return names of arguments and assigned variables, except global and nonlocal ones."""
    shared = {name for part in ast.walk(node) if isinstance(part, ast.Global | ast.Nonlocal) for name in part.names}
    found = [part.arg for part in ast.walk(node) if isinstance(part, ast.arg)]
    found += [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
    return [name for name in dict.fromkeys(found) if name not in shared and len(name) > 1 and name != "self"]


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self._names.get(node.arg, node.arg)
        return node
