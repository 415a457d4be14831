"""Tests the commands that build and inspect datastores."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from suffolk.cli.main import main
from tests.support.stores import make_word_store


@pytest.fixture
def store_path(tmp_path):
    return make_word_store(tmp_path / "store")


def test_info_shows_what_is_there(capsys, store_path):
    assert main(["info", store_path]) == 0
    assert "tokens             15\n" in capsys.readouterr().out
    assert main(["info", "--json", store_path]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 3


def test_info_shows_each_build_on_a_line(capsys, tmp_path):
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", np.arange(9))
    words = ["--output", str(tmp_path / "store")]
    assert main(["build", *words, "--vocab-size", "9", str(tmp_path / "0.npy")]) == 0
    assert main(["build", *words, "--append", str(tmp_path / "1.npy"), str(tmp_path / "0.npy")]) == 0
    capsys.readouterr()
    assert main(["info", str(tmp_path / "store")]) == 0
    shown = capsys.readouterr().out
    found = re.search(r"^builds +2\n  20\S+: (.*)\n  20\S+: (.*)$", shown, re.MULTILINE)
    assert found is not None
    assert found.groups() == (f"{tmp_path}/0.npy", f"{tmp_path}/1.npy, {tmp_path}/0.npy")
    assert "{" not in shown


def test_a_build_names_some_of_its_corpora_and_how_many_there_were(capsys, tmp_path):
    """Regression: each added build used to write all names of its corpora, until the manifest exceeded the limit of readers."""
    names = [str(tmp_path / f"{number:03}.npy") for number in range(103)]
    for name in names:
        np.save(name, np.arange(9))
    assert main(["build", "--output", str(tmp_path / "store"), "--vocab-size", "9", *names]) == 0
    capsys.readouterr()
    assert main(["info", str(tmp_path / "store")]) == 0
    assert f": {', '.join(names[:100])} and 3 more\n" in capsys.readouterr().out


def test_verify_tells_sound_from_damaged(capsys, store_path):
    assert main(["verify", "--depth", "full", store_path]) == 0
    assert ": sound (full; generation 1, 2 segments," in capsys.readouterr().out
    with open(f"{store_path}/segments/000001.seg", "r+b") as file:
        file.seek(256)
        file.write(b"\x05")
    assert main(["verify", store_path]) == 1
    err = capsys.readouterr().err
    assert "damaged" in err
    assert "000001.seg: the checksum of bytes 0 to" in err


def test_lookup_shows_counts_texts_and_places(capsys, store_path):
    assert main(["lookup", store_path, "dog cat sat", "--min-match", "2"]) == 0
    out = capsys.readouterr().out
    assert "match length  2 of 3 tokens: 'cat sat'" in out
    assert "match count   2" in out
    assert "the| cat sat| on the mat" in out
    assert "segment 0 document 0, token 1" in out
    assert "segment 1 document 0, token 1" in out
    assert main(["lookup", store_path, "--ids", "4", "4", "--json", "--min-match", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["match_length"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a text or --ids"),
        (["cat", "--ids", "1"], "give either a text or --ids"),
        (["--ids", "6"], "token id 6 at index 0 is out of range; the vocabulary has 6 ids"),
        (["cat", "--max-match", "60"], "above the datastore's order depth 64"),
        (["cat", "--top", "-1"], "--top is -1; it must be between 0 and 1000"),
        (["cat", "--top", "100000"], "--top is 100000; it must be between 0 and 1000"),
    ],
)
def test_lookup_refuses_bad_input_on_one_line(capsys, store_path, arguments, message):
    assert main(["lookup", store_path, *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_text_that_is_no_utf8_is_looked_up_all_the_same(capsys, store_path):
    assert main(["lookup", store_path, "cat \udcff\udcfe sat"]) == 0
    assert "match length" in capsys.readouterr().out


def test_verify_takes_folders_alone(capsys):
    assert main(["verify", "grpc://127.0.0.1:1/x"]) == 2
    err = capsys.readouterr().err
    assert err == "suffolk: grpc://127.0.0.1:1/x: verify needs the datastore's folder; run it where that folder is\n"


@pytest.mark.parametrize("name", ["MANIFEST", "segments/000000.seg"])
def test_verify_calls_a_folder_in_place_of_a_file_damage(capsys, store_path, name):
    Path(store_path, name).unlink()
    Path(store_path, name).mkdir()
    assert main(["verify", store_path]) == 1
    assert capsys.readouterr().err.startswith(f"suffolk: damaged: {store_path}/{name} is ")


def test_building_into_a_folder_of_other_things_is_refused(capsys, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    np.save(tmp_path / "x.npy", np.arange(9))
    assert main(["build", "--vocab-size", "9", "--output", str(tmp_path / "mine"), str(tmp_path / "x.npy")]) == 2
    assert "holds 'thesis.txt' and is no datastore" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("depth", ["0", "-1", "99999999999999"])
def test_order_depth_is_checked_before_any_work(capsys, tmp_path, depth):
    arguments = ["build", "--vocab-size", "9", "--order-depth", depth, "--output", str(tmp_path / "s"), "x.npy"]
    assert main(arguments) == 2
    assert "--order-depth is" in capsys.readouterr().err


def test_the_text_to_look_up_may_stand_behind_options(capsys, store_path):
    assert main(["lookup", store_path, "--top", "3", "--json", "the cat"]) == 0
    assert json.loads(capsys.readouterr().out)["match_length"] == 2
    assert main(["lookup", store_path, "--json", "the cat", "sat"]) == 2
    assert "unexpected argument 'sat'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"), [(None, "is missing"), ("{}", "is damaged"), ("other", "is not the one")]
)
def test_verify_finds_a_tokenizer_that_is_gone_or_another(capsys, tmp_path, store_path, content, message):
    (path,) = Path(store_path).glob("tokenizer-*.json")
    if content is None:
        path.unlink()
    elif content == "{}":
        path.write_text(content)
    else:
        Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(path))
    assert main(["verify", store_path]) == 1
    damage = capsys.readouterr().err
    assert message in damage
    assert main(["lookup", store_path, "the cat"]) == 2
    assert capsys.readouterr().err == damage.replace("damaged: ", "", 1)


def test_ids_are_looked_up_where_the_tokenizer_is_gone(capsys, store_path):
    (path,) = Path(store_path).glob("tokenizer-*.json")
    path.unlink()
    assert main(["lookup", store_path, "--ids", "0", "1"]) == 0
    assert "match length  2 of 2 tokens: '0 1'" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--max-match", "--min-match", "--max-depth", "--top", "--occurrences"])
@pytest.mark.parametrize("value", ["5000000000", "100000000000000000000"])
def test_lookup_refuses_numbers_beyond_all_limits(capsys, store_path, option, value):
    assert main(["lookup", store_path, "cat", option, value]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"suffolk: {option} is {value}; it must be")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["corpus.txt", "--metadata", ","], "--metadata ',' names nothing"),
        (["corpus.txt", "--extensions", ""], "--extensions '' names nothing"),
        (
            ["corpus.txt", "--output", "corpus.txt", "--vocab-size", "9"],
            "corpus.txt is a file; name a new or empty folder",
        ),
        (["rubbish.npy", "--vocab-size", "9"], "rubbish.npy: not a whole .npy file of numbers; write it again"),
        (["empty.jsonl", "--vocab-size", "9"], "nothing to read (1 empty)"),
    ],
)
def test_a_build_of_what_cannot_be_is_one_line_and_2(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("text")
    (tmp_path / "rubbish.npy").write_bytes(b"rubbish, and more of it")
    (tmp_path / "empty.jsonl").touch()
    assert main(["build", "--output", "store", *words]) == 2
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if line.startswith("suffolk: ")]
    assert len(lines) == 1
    assert message in lines[0]
    assert "pickle" not in err
