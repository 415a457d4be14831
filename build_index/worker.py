"""The program of a tokenizing process: reads blocks from a socket, and writes encoded blocks or errors in order.

It is started as ``python -m suffolk.build_index.worker DESCRIPTOR``. It ends when the builder's end of the socket is closed. So no
worker outlives a killed builder.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from multiprocessing.connection import Connection

from suffolk.build_index.block import Payload
from suffolk.build_index.encode_block import BlockEncoder
from suffolk.datastore.errors import Internal, SuffolkError


def main() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is one worker per core already
    connection = Connection(int(sys.argv[1]))
    inbox: queue.SimpleQueue[Payload | None] = queue.SimpleQueue()
    try:
        encoder = BlockEncoder(connection.recv())
        threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
        while (payload := inbox.get()) is not None:
            connection.send(_encode(encoder, payload))
    except (EOFError, OSError):  # the builder has ended, perhaps in the middle of a message
        return


def _receive(connection: Connection, inbox: queue.SimpleQueue[Payload | None]) -> None:
    """Receive blocks while results are sent; otherwise both sides could block in a send."""
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        return
    finally:
        inbox.put(None)


def _encode(encoder: BlockEncoder, payload: Payload) -> object:
    try:
        return encoder.encode(payload)
    except SuffolkError as error:
        return error
    except Exception as error:  # noqa: BLE001  the tokenizers raise bare Exception; the builder raises it again
        return Internal(f"tokenizing failed ({type(error).__name__}: {error}); build with --tokenization exact")


if __name__ == "__main__":
    main()
