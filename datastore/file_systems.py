"""File systems behind URLs such as s3://BUCKET/FOLDER, through fsspec. It is imported when the first URL is opened."""

from __future__ import annotations

import errno
import logging
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from suffolk.datastore.errors import (
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    SuffolkError,
    Unavailable,
    Unsupported,
)
from suffolk.datastore.hub import short_reason

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "hf", "file", "memory"})
"""Supported schemes of URLs. Other schemes of fsspec, such as ftp, lack calls that datastores need: to list, read parts or
publish."""
FORMS = (
    "s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, abfs://CONTAINER/FOLDER, hf://datasets/OWNER/NAME/FOLDER or file:///FOLDER"
)


_NO_TLS = re.compile(r"SSL|Certificate")
"""Names of errors of encrypted connections."""
_NO_CREDENTIALS = re.compile("[Cc]redential|Profile|Config|Token|SSO")
"""Parts of error names. Clients raise these errors if they find no credentials, or if their files have no valid credentials."""

logging.getLogger("aiobotocore").addHandler(logging.NullHandler())
"""Without a handler, Python prints the client's warnings, with tracebacks of errors that the client raises anyway."""


def is_storage_url(text: str) -> bool:
    """Whether ``text`` is the URL of a place in storage, not a path and not the URL of a service."""
    scheme, found, _ = text.partition("://")
    lacks_slash = text.startswith(tuple(f"{scheme}:/" for scheme in SCHEMES))  # a URL that lacks a slash, not a folder
    return lacks_slash or (bool(found) and not scheme.startswith(("grpc", "http")))


def open_file_system(url: str) -> tuple[AbstractFileSystem, str]:
    """The file system of ``url``, and the path of ``url`` in it. Directories are listed anew each time.

    Raises:
        InvalidArgument: ``url`` is no URL, names no bucket or folder, has a scheme outside SCHEMES, or has an empty, ``.``
            or ``..`` name between slashes. Object stores take these names literally, but their clients disagree on them.
        Unsupported: the package for its scheme is not installed.
    """
    if not is_storage_url(url) or "://" not in url:
        raise InvalidArgument(f"{url}: not the URL of a place in storage; the forms are {FORMS}")
    scheme, _, place = url.partition("://")
    if scheme not in SCHEMES:
        raise InvalidArgument(f"{url}: {scheme}:// is not supported; the forms of URLs are {FORMS}")
    if not place.strip("/"):
        raise InvalidArgument(f"{url}: names no bucket or folder; the forms of URLs are {FORMS}")
    root = "/" if scheme in ("file", "memory") else ""
    if scheme == "file" and not place.startswith("/"):
        raise InvalidArgument(f"{url}: file:// takes a path from the root, as in file:///{place}")
    if odd := {"", ".", ".."}.intersection(place.removeprefix(root).removesuffix("/").split("/")):
        name = f"the name {max(odd)!r}" if any(odd) else "an empty name"
        clean = root * place.startswith("/") + posixpath.normpath(f"/{place}").strip("/")
        raise InvalidArgument(f"{url}: has {name} between slashes; write {scheme}://{clean}")
    return file_system_at(url)


def file_system_at(url: str) -> tuple[AbstractFileSystem, str]:
    """Like ``open_file_system``, for a URL that a file system has listed. Its names are neither changed nor checked."""
    with storage_errors(url):
        from fsspec.core import url_to_fs

        files, path = url_to_fs(url, use_listings_cache=False)
        return files, str(path)


@contextmanager
def storage_errors(place: str) -> Iterator[None]:
    """Turns the errors of a file system at the URL ``place`` into Suffolk's errors.

    The libraries below fsspec have their own errors, without a common base. Errors not listed in this function become Unavailable.
    """
    try:
        yield
    except SuffolkError:
        raise
    except ImportError as error:
        raise Unsupported(
            f"{place}: {short_reason(error)}; pip install 'suffolk[storage]' brings fsspec and s3fs"
        ) from error
    except ValueError as error:
        from fsspec import available_protocols

        if place.partition("://")[0] not in available_protocols():  # packages add further schemes to fsspec
            raise Unsupported(f"{place}: {short_reason(error)}; pip install adlfs brings it") from error
        endpoint = "; write AWS_ENDPOINT_URL, or endpoint_url of the profile, as https://HOST:PORT"
        raise InvalidArgument(
            f"{place}: {short_reason(error)}; the forms of URLs are {FORMS}{endpoint * place.startswith('s3')}"
        ) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"{place}: not found ({short_reason(error)}); check the URL") from error
    except Exception as error:
        reason = short_reason(error)
        if _code(error) == "InvalidObjectState":
            raise Unsupported(
                f"{place}: in the store's archive ({reason}), such as Glacier; restore it first, or leave it out"
            ) from error
        if isinstance(error, PermissionError) or _NO_CREDENTIALS.search(type(error).__name__):
            public = "; a public bucket can be read without any, with FSSPEC_S3_ANON=true" * place.startswith("s3")
            raise PermissionDenied(
                f"{place}: access denied ({reason}); check the credentials and what they may do there{public}"
            ) from error
        number = error.errno if isinstance(error, OSError) else None
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise ResourceExhausted(f"{place}: the disk is full; free space, and run the command again") from error
        if number == errno.ENOSYS:
            raise Unsupported(
                f"{place}: the store cannot do this ({reason}); a push needs conditional writes (If-None-Match), and a store that "
                "knows no checksums needs AWS_REQUEST_CHECKSUM_CALCULATION=when_required"
            ) from error
        if number == errno.EROFS:
            raise PermissionDenied(f"{place}: cannot be written ({reason}); choose another URL") from error
        if _NO_TLS.search(type(error).__name__):
            raise Unavailable(
                f"{place}: no encrypted connection ({reason}); name the certificate of its authority with AWS_CA_BUNDLE=FILE.pem, "
                "or write AWS_ENDPOINT_URL with http:// for a store without encryption"
            ) from error
        if place.startswith("s3") and (number == errno.EINVAL or "x-amz-" in reason):
            raise Unavailable(
                f"{place}: the store refuses the request ({reason}); if it knows no checksums, set "
                "AWS_REQUEST_CHECKSUM_CALCULATION=when_required; else check the URL, and run the command again"
            ) from error
        raise Unavailable(
            f"{place}: the storage does not answer as it should ({reason}); check URL and network, and run the command again"
        ) from error


def _code(error: BaseException) -> str:
    """The code of S3 in an error of s3fs; empty if the error has no code."""
    answer = getattr(error.__cause__, "response", None)
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""
