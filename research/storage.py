"""Measures push and pull of a datastore with an S3 server on this machine, beside plain copies with the same client."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from research.command import command_parser, run_command
from suffolk.benchmarks.report import make_report, write_report
from suffolk.build_index.builder import build
from suffolk.build_index.options import BuildOptions
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.manifest import SEGMENTS_NAME, read_manifest
from suffolk.serving.store.storage import fetch
from suffolk.serving.store.storage.pull import pull
from suffolk.serving.store.storage.push import push

NOTES = (
    "push and pull verify all checksums; a pull also syncs its files",
    "client put and get: s3fs copies the segments alone; disk copy: shutil.copytree",
    "pull_large_parts: parts of 50 MiB in place of 8, as s3fs takes them; moto copies the whole object for each part",
    "all processes share the machine's cores, and the S3 server (moto) is in Python: it bounds every rate but the disk's",
)
SERVER = """
from werkzeug.serving import WSGIRequestHandler
WSGIRequestHandler.handle_expect_100 = lambda self: True
from moto.server import main
main(["-H", "127.0.0.1", "-p", "0"])
"""
"""The S3 server. Without the second line, werkzeug answers '100 Continue' twice, and clients may wait for ever."""


@contextmanager
def s3_server() -> Iterator[str]:
    """The URL of a new bucket on a server of this process, or in $AWS_ENDPOINT_URL with the bucket $SUFFOLK_BUCKET."""
    if "AWS_ENDPOINT_URL" in os.environ:
        yield f"s3://{os.environ['SUFFOLK_BUCKET']}"
        return
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        assert server.stderr is not None
        address = next(filter(None, (re.search(r"http://127\S+", line) for line in server.stderr)))[0]
        os.environ.update(
            AWS_ENDPOINT_URL=address,
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_DEFAULT_REGION="us-east-1",
            FSSPEC_S3='{"config_kwargs": {"read_timeout": 600}}',  # the server joins the parts of an upload before it answers
        )
        import s3fs

        s3fs.S3FileSystem().mkdir("bucket")
        try:
            yield "s3://bucket"
        finally:
            server.kill()


def measure(store: Path, added: str, folder: Path, url: str) -> dict[str, Any]:
    """Seconds and bytes of each copy. ``added``: text that is appended."""
    import s3fs

    client, work = s3fs.S3FileSystem(), folder / "store"
    size = sum(entry.bytes for entry in read_manifest(store).files())
    results: dict[str, Any] = {"megabytes": size / 1e6}

    def time_of(name: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = call()
        results[f"{name}_seconds"] = time.perf_counter() - begin
        return result

    plain = f"{url.removeprefix('s3://')}/plain"
    time_of("disk_copy", lambda: shutil.copytree(store, work, ignore=shutil.ignore_patterns("readers", "LOCK")))
    disk = f"file://{folder}/disk"
    time_of("file_push", lambda: push(work, disk))
    time_of("file_pull", lambda: pull(disk, folder / "disk-copy"))
    time_of("client_put", lambda: client.put(str(work / SEGMENTS_NAME), plain, recursive=True))
    time_of("push", lambda: push(work, f"{url}/code"))
    time_of("client_get", lambda: client.get(plain, str(folder / "plain"), recursive=True))
    time_of("pull", lambda: pull(f"{url}/code", folder / "copy"))
    with patch.object(fetch, "PART_BYTES", 50 << 20):
        time_of("pull_large_parts", lambda: pull(f"{url}/code", folder / "large"))
    time_of("push_nothing", lambda: push(work, f"{url}/code"))
    time_of("pull_nothing", lambda: pull(f"{url}/code", folder / "copy"))
    build(BuildOptions((added,), work, mode="append"))
    sent = time_of("push_append", lambda: push(work, f"{url}/code"))
    fetched = time_of("pull_append", lambda: pull(f"{url}/code", folder / "copy"))
    results |= {"sent_append_megabytes": sent.sent_bytes / 1e6, "fetched_append_megabytes": fetched.fetched_bytes / 1e6}
    with open_datastore(work) as left, open_datastore(folder / "copy") as right:
        assert left.manifest.segments == right.manifest.segments
    return results


def run(args: argparse.Namespace) -> int:
    read_manifest(args.store)  # raises before a server starts
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, s3_server() as url:
        results = measure(args.store, args.added, Path(folder), url)
    for name, value in results.items():
        rate = results["megabytes"] / value if name.endswith("_seconds") and value > 0.5 else None
        print(f"{name:<28} {value:10.2f}{'' if rate is None else f'  {rate:8.1f} MB/s of the whole datastore'}")
    if args.json is not None:
        settings = {"store": str(args.store), "added": args.added}
        write_report(make_report("storage", 0, settings, results, NOTES, ("s3fs", "moto")), args.json)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("storage", __doc__, "STORE --added datastore/ --json storage.json")
    add = parser.add_argument
    add("store", type=Path, metavar="STORE", help="folder of a datastore; a copy of it is pushed")
    add("--added", default="datastore", metavar="CORPUS", help="text to append (default: %(default)s)")
    add("--folder", type=Path, help="where copies are made (default: the system's)")
    add("--json", type=Path, metavar="FILE", help="write the results here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
