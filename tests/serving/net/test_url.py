"""Tests URLs of services: forms, options, and messages for malformed URLs."""

from __future__ import annotations

import pytest

from suffolk.datastore.errors import (
    InvalidArgument,
)
from suffolk.serving.net.url import ServiceUrl, is_url, parse_url
from suffolk.serving.worker.client import connect_worker


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("grpc://127.0.0.1:7700/wiki", ServiceUrl("127.0.0.1:7700", "wiki")),
        ("grpc://host", ServiceUrl("host:7700")),
        ("grpc://[::1]:9/a.b-c", ServiceUrl("[::1]:9", "a.b-c")),
        ("grpc://host/wiki?deadline_ms=7.5", ServiceUrl("host:7700", "wiki", 0.0075)),
        ("grpc+unix:///run/s.sock#wiki", ServiceUrl("unix:/run/s.sock", "wiki")),
        ("grpc+unix:///run/s.sock?deadline_ms=5", ServiceUrl("unix:/run/s.sock", "", 0.005)),
        (
            "grpcs://host:1/wiki?ca=/a.pem&cert=b.pem&key=c.pem",
            ServiceUrl("host:1", "wiki", None, True, "/a.pem", "b.pem", "c.pem"),
        ),
    ],
)
def test_urls(url: str, parts: ServiceUrl) -> None:
    assert is_url(url)
    assert parse_url(url) == parts


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s3://bucket/store", "; copy a datastore in storage first: suffolk pull s3://bucket/store DIR"),
        ("http://host/wiki", "not the URL of a draft service or worker; the forms are grpc://HOST:PORT/NAME"),
        ("grpc://host:99999/wiki", "Port out of range"),
        ("grpc://host/a/b/c", "malformed URL; the forms are grpc://HOST:PORT/NAME"),
        ("grpc:///wiki", "malformed URL; the forms are grpc://HOST:PORT/NAME"),
        ("grpc://host/wiki?retries=3", "unknown key 'retries'; the keys are deadline_ms, token_file"),
        ("grpc://host/wiki?ca=x", "unknown key 'ca'"),
        ("grpcs://host/wiki?cert=x", "cert and key belong together"),
        ("grpcs://host/wiki?ca=", "ca is empty; give it a value or leave it out"),
        ("grpcs://host/wiki?cert=&key=x", "cert is empty"),
        ("grpcs://host/wiki?cert=x&key=", "key is empty"),
        ("grpc://host/wiki?deadline_ms=0", "deadline_ms is '0'; it must be a number above 0"),
        ("grpc://host/wiki?deadline_ms=nan", "deadline_ms is 'nan'"),
        ("grpc+unix://run/s.sock#wiki", "has three slashes"),
    ],
)
def test_bad_urls(url: str, text: str) -> None:
    assert is_url(url)  # not the path of a datastore
    with pytest.raises(InvalidArgument) as caught:
        parse_url(url)
    assert text in str(caught.value)
    assert url in str(caught.value)


@pytest.mark.parametrize("url", ["http://host:7710", "grpc://host:7710/a/b", "grpc+unix://run/s.sock"])
def test_a_bad_worker_url_shows_the_forms_of_worker_urls(url: str) -> None:
    with pytest.raises(
        InvalidArgument, match=r"the forms are grpc://HOST:PORT, grpcs://HOST:PORT\?ca=FILE or grpc\+unix:///PATH$"
    ):
        connect_worker(url)


@pytest.mark.parametrize("path", ["store/", "/a/grpc", "grpc:store"])
def test_paths_are_no_urls(path: str) -> None:
    assert not is_url(path)
