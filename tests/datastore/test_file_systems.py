"""Errors of the clients of storage say what to do about them."""

from __future__ import annotations

import errno
import logging

import pytest

from suffolk.datastore.errors import InvalidArgument, PermissionDenied, SuffolkError, Unavailable, Unsupported
from suffolk.datastore.file_systems import storage_errors

botocore = pytest.importorskip("botocore.exceptions")


@pytest.mark.parametrize(
    ("raised", "error", "message"),
    [
        (
            botocore.ProfileNotFound(profile="x"),
            PermissionDenied,
            "profile .x. could not be found.; check the credential",
        ),
        (
            botocore.ConfigParseError(path="/c"),
            PermissionDenied,
            "Unable to parse config file: /c.; check the credential",
        ),
        (botocore.SSOTokenLoadError(error_msg="none"), PermissionDenied, "SSO Token: none.; check the credentials"),
        (
            botocore.NoCredentialsError(),
            PermissionDenied,
            "Unable to locate credentials.; check the credentials .*; a public bucket .* FSSPEC_S3_ANON=true",
        ),
        (botocore.EndpointConnectionError(endpoint_url="x"), Unavailable, "check URL and network"),
        (botocore.SSLError(endpoint_url="x", error="self-signed"), Unavailable, "AWS_CA_BUNDLE=FILE.pem"),
        (
            ValueError("Invalid endpoint: minio:9000"),
            InvalidArgument,
            "minio:9000; .*; write AWS_ENDPOINT_URL, .* as https:",
        ),
        (ValueError("no bucket"), InvalidArgument, "the forms of URLs are"),
        (OSError(errno.ENOSYS, "NotImplemented"), Unsupported, "the store cannot do this .* conditional writes"),
        (
            OSError(errno.EINVAL, "Unsupported header 'x-amz-checksum-crc32' received for this API call."),
            Unavailable,
            "the store refuses the request .* set AWS_REQUEST_CHECKSUM_CALCULATION=when_required",
        ),
        (OSError(errno.EIO, "'x-amz-content-sha256' does not match"), Unavailable, "the store refuses the request"),
    ],
)
def test_errors_of_clients(raised: Exception, error: type[SuffolkError], message: str) -> None:
    with pytest.raises(error, match=message), storage_errors("s3://bucket/x"):
        raise raised


def test_advice_is_of_the_same_kind_of_storage() -> None:
    """Regression: a URL whose package is missing was answered with the settings of S3."""
    missing = "Protocol not known: abfss; pip install adlfs brings it$"
    with pytest.raises(Unsupported, match=missing), storage_errors("abfss://a/b"):
        raise ValueError("Protocol not known: abfss")
    with pytest.raises(InvalidArgument, match="the forms of URLs are [^;]*$"), storage_errors("gs://a/b"):
        raise ValueError("no bucket")
    with pytest.raises(PermissionDenied, match="may do there$"), storage_errors("gs://a/b"):
        raise PermissionError("Forbidden")


def test_warnings_of_clients_are_not_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of S3 reports an expired token with a traceback of many lines."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a command
    logging.getLogger("aiobotocore.tokens").warning("Refreshing token failed")
    assert capsys.readouterr().err == ""
