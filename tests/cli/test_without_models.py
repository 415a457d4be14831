"""Everything except models runs without torch and transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import transformers

from suffolk.cli.commands import COMMANDS
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recording import COUNTS, Recording
from tests.support.building import make_texts, tokenize, write_jsonl, write_tokenizer
from tests.support.json_lines import write_rows
from tests.support.without_models import python, suffolk

INSTALL = "pip install 'suffolk[worker]'"
NAMES_OF_MODELS = {"Engine", "Generation", "Target", "generate"}


def done(*arguments: str | Path) -> str:
    found = suffolk(*arguments)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.fixture
def store(tmp_path: Path) -> Path:
    corpus = write_jsonl(tmp_path / "a.jsonl", make_texts(20))
    done("build", "--tokenizer", write_tokenizer(tmp_path), "--output", tmp_path / "store", "--threads", "1", corpus)
    return tmp_path / "store"


def test_every_command_prints_help() -> None:
    words = [[*name.split(), "--help"] for name in COMMANDS]
    code = f"from suffolk.cli.main import main; sys.exit(max(map(main, {[['--help'], ['--version'], *words]!r})))"
    found = python(code)
    assert found.returncode == 0, found.stderr


def test_datastores_are_built_read_and_changed(store: Path) -> None:
    assert "match length" in done("lookup", store, "return value")
    assert json.loads(done("lookup", store, "--json", "--draft", "return value"))["draft"]["tokens"]
    for command in ("info", "verify", "compact"):
        assert done(command, store)


def test_replay_reads_recordings(store: Path, tmp_path: Path) -> None:
    ids = tokenize(make_texts(1)[0])
    mark = fingerprint(load_tokenizer(tmp_path / "tokenizer"))
    settings = SamplingSettings(max_new_tokens=len(ids) - 5)
    recording = Recording(np.array(ids[:5], np.int32), np.array(ids[5:], np.int32), settings, 600, tokenizer=mark)
    row = recording.to_dict() | {"counts": dict.fromkeys(COUNTS, 0)}
    day = write_rows(tmp_path / "day.jsonl", [row])
    table = done("replay", day, "--datastore", store)
    assert [line.split()[0] for line in table.splitlines()[2:5]] == ["datastore", "prompt-lookup", "hybrid"]


@pytest.mark.parametrize(
    "command",
    [
        "generate --model {0} hello",
        "worker --model {0} --listen 127.0.0.1:0",
        "profile --model {0}",
        "train eagle --model {0} --corpus {0} --output {0}/head",
        "bench decode --model {0} --prompts {0}",
    ],
)
def test_commands_that_need_a_model_name_the_extra(tmp_path: Path, command: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    write_rows(tmp_path / "prompts.jsonl", [{"prompt": "a", "text": "a"}])
    found = suffolk(*command.format(tmp_path).split())
    assert (found.returncode, found.stdout) == (2, "")
    [line] = found.stderr.splitlines()
    assert line == f"suffolk: torch is not installed, and models need it; {INSTALL}"


def test_a_tokenizer_of_another_form_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\nhello\n")
    found = suffolk("build", "--tokenizer", tmp_path, "--output", tmp_path / "s", tmp_path)
    assert found.stderr.strip().endswith(
        f"it has no tokenizer.json, and converting another form needs transformers; {INSTALL}"
    )


def test_public_names_without_models() -> None:
    code = (
        "import suffolk\n"
        "for name in suffolk.__all__:\n"
        "    try: getattr(suffolk, name)\n"
        "    except suffolk.Unsupported as error: print(name, error)"
    )
    found = python(code)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert {line.split()[0] for line in lines} == NAMES_OF_MODELS
    assert all(line.endswith(INSTALL) for line in lines)


def test_a_store_and_its_service_without_models(store: Path) -> None:
    code = (
        "import suffolk\n"
        "from suffolk.serving.store.draft_service.server import DraftServer, DraftServerConfig\n"
        "from suffolk.serving.net.endpoint import Endpoint\n"
        "free = Endpoint('127.0.0.1', 0)\n"
        f"with suffolk.open({str(store)!r}) as local:\n"
        "    config = DraftServerConfig(listen=(free,), http=free)\n"
        "    with DraftServer(config, {'s': local}) as server:\n"
        "        with suffolk.open(f'grpc://{server.listening[0]}/s', deadline=5.0) as remote:\n"
        "            assert remote.lookup('return value') == local.lookup('return value')\n"
    )
    found = python(code)
    assert found.returncode == 0, found.stderr


def test_the_fingerprint_does_not_depend_on_the_way_of_loading(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path)
    ours = fingerprint(load_tokenizer(folder))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
    assert fingerprint(tokenizer.backend_tokenizer) == ours
    tokenizer.save_pretrained(tmp_path / "saved")
    assert fingerprint(load_tokenizer(tmp_path / "saved")) == ours
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert fingerprint(loaded.backend_tokenizer) == ours
    assert fingerprint(load_tokenizer(tmp_path / "saved" / "tokenizer.json")) == ours
