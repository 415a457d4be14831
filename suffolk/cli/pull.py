"""Copy a datastore from storage to a folder: s3://, gs://, hf:// or file://.

Only segments that the folder lacks are fetched. The folder changes to the new generation at the end,
and running servers of it follow within a second. Ctrl-C or a lost connection leaves the folder as it
was; run the command again to go on. A folder that holds anything else than an unchanged copy of URL
is refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from suffolk.build_index.progress import show_progress
from suffolk.build_index.report import count, megabytes
from suffolk.cli.options import setting
from suffolk.cli.store_lines import change_report
from suffolk.datastore.settings import REQUIRED, argument, option
from suffolk.serving.store.storage.pull import PullReport, pull

EXAMPLES = """
suffolk pull s3://bucket/code code/
suffolk pull s3://bucket/code code/ --generation 11    an older one; 'suffolk generations' lists them
suffolk serve s3://bucket/code --cache /var/cache/suffolk      without a pull: serve follows the URL"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    url: str = argument(REQUIRED, "a datastore's place in storage", metavar="URL")
    store: Path = argument(REQUIRED, "folder of the copy", metavar="DIR")
    generation: int | None = option(None, "number of the generation (default: the newest)")
    replace: bool = option(False, "replace a datastore in DIR that is no unchanged copy of URL")
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    try:
        with show_progress() as progress:
            report = pull(options.url, options.store, options.generation, options.replace, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"before the end; readers of {options.store} see no unfinished generation; run the command again to continue"
        ) from None
    print(change_report(asdict(report), _lines(report), options.store, report.changed, options.json))
    return 0


def _lines(report: PullReport) -> list[str]:
    if not report.changed:
        return [f"{report.store}: nothing to do: it is generation {report.generation} of {report.url}"]
    rate = f": {report.fetched_bytes / report.seconds / 1e6:.1f} MB/s" if report.fetched_bytes else ""
    return [
        f"pulled {report.url} to {report.store} (generation {report.generation})",
        f"  holds      {count(report.segments, 'segment')}, {megabytes(report.bytes)}",
        f"  fetched    {count(report.fetched_files, 'segment')}, {megabytes(report.fetched_bytes)}, "
        f"in {report.seconds:.1f} s{rate}",
    ]
