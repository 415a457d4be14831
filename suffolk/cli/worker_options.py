"""The options of ``suffolk worker``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from suffolk.cli.drafting import HYBRID, DrafterOptions, PlannerOptions, RetrievalOptions
from suffolk.cli.model import MODEL, DeviceOptions
from suffolk.cli.options.setting import Configurable
from suffolk.cli.output_file import RECORD, CalibrationOptions
from suffolk.cli.server_options import ServerOptions, http_option, listen_option, switch_option
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import REQUIRED, Within, option, rare
from suffolk.serving.decoding.drafters.registry import NONE, find, names
from suffolk.serving.net.url import WORKER_PORT, names_several
from suffolk.serving.worker.openai.reasoning import find_marks
from suffolk.serving.worker.openai.tool_format import AUTO, FORMATS

EXAMPLES = """
suffolk worker --model MODEL_FOLDER                         gRPC on 127.0.0.1:7710, HTTP on 127.0.0.1:7711
suffolk worker --model MODEL_FOLDER --datastore code/ --datastore grpc://127.0.0.1:7700/wiki --slots 16
suffolk worker --model MODEL_FOLDER --head HEAD_FOLDER --datastore code/
suffolk worker --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --slots 4
suffolk worker --model MODEL_FOLDER --datastore code/ --set recycle=true
suffolk worker --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --levels "prompt-lookup:4 > draft-model:6"
suffolk worker --model MODEL_FOLDER --listen 0.0.0.0:7710 --tls-cert server.pem --tls-key server.key --access access.toml
suffolk worker --model MODEL_FOLDER --record day.jsonl       every finished text, for 'suffolk replay'
suffolk worker --model MODEL_FOLDER --remember chat/          search earlier texts, and add every finished one
suffolk worker --model MODEL_FOLDER --http :8000 --access access.toml     OpenAI's API on 127.0.0.1:8000/v1
suffolk worker --config worker.toml
suffolk generate --worker grpc://127.0.0.1:7710 "Write a sort function."
curl http://127.0.0.1:7711/metrics"""


@dataclass(frozen=True, kw_only=True)
class RoomOptions(DeviceOptions):
    """How much a worker decodes at once."""

    GROUP = "model"
    model: str = option(REQUIRED, MODEL)
    slots: Annotated[int, Within(1, 1024)] = option(8, "requests decoded at once")
    capacity: Annotated[int, Within(2, 1 << 24)] = option(
        4096,
        "the most tokens of a request (prompt, new tokens and largest draft tree); at most the model's context",
    )
    queue: Annotated[int, Within(0, 4096)] = rare(64, "the most requests that wait; further requests are refused")
    no_prefix_reuse: bool = option(
        False, "read every prompt whole, even if it begins like another text of its tenant that is in the cache"
    )
    pass_mode: str = rare(
        "auto",
        "kind of forward passes. 'packed': any shape; 'captured': a few static shapes, as CUDA graphs; 'compiled': on a CPU, by "
        "torch and a C++ compiler, which takes minutes at the first start; 'graph': on CUDA, compiled and captured, unmeasured; "
        "'auto' is 'captured' on CUDA, else 'packed'",
        choices=("auto", "packed", "captured", "compiled", "graph"),
    )


@dataclass(frozen=True, kw_only=True)
class WorkerDrafterOptions(DrafterOptions):
    """Which drafters requests may choose from."""

    GROUP = "drafting"
    drafter: tuple[str, ...] = option(
        (),
        "a drafter that requests may name; may be repeated (default: all that can run). A request that names none gets the first "
        "available of hybrid, datastore and prompt-lookup",
        choices=(NONE, *names()),
        metavar="NAME",
    )

    def loaded(self) -> list[str]:
        """The names of the drafters to load. Raises the errors of ``chosen``."""
        return self.chosen((NONE, *names()))


@dataclass(frozen=True, kw_only=True)
class Options(
    RoomOptions, ServerOptions, WorkerDrafterOptions, RetrievalOptions, PlannerOptions, CalibrationOptions, Configurable
):
    """All options of ``suffolk worker``."""

    listen: tuple[str, ...] = listen_option(WORKER_PORT)
    http: str = http_option(WORKER_PORT + 1, "OpenAI's API, /metrics and /healthz")
    playground: str = switch_option(
        "web page at the HTTP address that shows drafts, and the draft trees and passages of datastores behind it"
    )
    cors_origin: tuple[str, ...] = rare((), "origin of web pages that may read answers, or * for all", metavar="ORIGIN")
    served_model_name: tuple[str, ...] = option(
        (),
        "names by which requests may call the model (default: the name of its folder); requests that name none get the "
        "first",
        metavar="NAME",
        several=True,
        group="serving",
    )
    tool_format: str = rare(
        AUTO,
        "form in which the model writes tool calls; 'auto' is the form of its chat template",
        choices=(AUTO, *FORMATS),
    )
    reasoning: str = rare(
        AUTO,
        "marks around the reasoning of the model, with a space between; 'auto' is those of its chat template, and 'none' leaves "
        "reasoning in the content",
        metavar="MARKS",
    )
    stream_interval: Annotated[float, Within(0, 60_000)] = option(
        0.0,
        "the least time between two packets of a stream; 0 sends one packet for each step, whose size shows the accepted tokens",
        metavar="MS",
    )
    typical_floor: Annotated[float, Within(0, 1)] = rare(
        0.0,
        "the least probability, under the model's own distribution, of a token that verification 'typical' may accept; 0 refuses "
        "'typical', because its answers may reveal text of the datastores",
    )
    share_learning: bool = rare(
        False,
        "with --access: learn from the texts of all tenants together; response times may then reveal parts of them",
    )
    tls_client_ca: str | None = rare(
        None,
        "PEM certificate of the authority that must have signed the certificates of clients (mTLS)",
        metavar="FILE",
    )
    grace: Annotated[float, Within(0, 600)] = rare(
        30.0, "seconds that running requests may still take when the server stops", metavar="SECONDS"
    )
    record: Path | None = option(None, RECORD, group="serving", written=True)
    remember: str | None = option(
        None,
        "live datastore to which finished answers are appended in the background, and which is searched too: a URL, or a folder, "
        "which is made if it does not exist. The address of several servers is not searched, unless --datastore names it. "
        "Requests may opt out, and may name a group",
        metavar="STORE",
        group="serving",
    )

    @property
    def datastore(self) -> tuple[str, ...]:
        """Folders and URLs of datastores, and ``remember``."""
        names = super().datastore
        if self.remember is None or self.remember in names or names_several(self.remember):
            return names
        return (*names, self.remember)

    def check(self) -> None:
        """Raise InvalidArgument if options contradict each other, or a drafter cannot run."""
        find_marks(None, self.reasoning)
        drafters = self.loaded()
        if drafters == [NONE] and self.costs is not None:
            raise InvalidArgument(f"costs {self.costs}: --drafter none does not use them; leave one of them out")
        if drafters != [NONE] and self.capacity < self.max_nodes + 2:
            raise InvalidArgument(
                Field("capacity"),
                f" is {self.capacity}: beside the {self.max_nodes} nodes of a draft tree no text fits into a slot; "
                "raise it, or lower max_nodes (--set max_nodes=N)",
            )
        self._require_states(drafters)
        if self.access and not self.share_learning:
            self._require_tenants_apart()

    def _require_states(self, drafters: list[str]) -> None:
        """Raise InvalidArgument if passes give no hidden states, and one of ``drafters`` reads them."""
        run = {*drafters, *self.drafter_config().parts()} if HYBRID in drafters else {*drafters}
        readers = sorted(name for name in run - {NONE} if find(name).reads_states)
        if self.pass_mode == "compiled" and readers:
            raise InvalidArgument(
                Field("pass_mode"),
                f" compiled: its passes give no hidden states, which drafter {readers[0]} reads; leave it out, or use "
                "packed passes",
            )

    def _require_tenants_apart(self) -> None:
        """Raise InvalidArgument if the texts of one tenant would reach another tenant."""
        if self.drafter_values.get("recycle"):
            raise InvalidArgument(
                Field("recycle"),
                ": with --access, token recycling would learn from the texts of all tenants; leave it out, or add "
                "--set share_learning=true",
            )
        if self.remember:
            raise InvalidArgument(
                f"remember {self.remember}: with --access, one datastore would hold the texts of all tenants; leave it out, or "
                "add --set share_learning=true"
            )
