"""Serves datastores: calls, live stores, their copies, and object storage.

``draft_service`` answers look-ups, drafts, appends and deletions, over gRPC and HTTP. ``live_store`` is a datastore
with appends: a log, an index in memory, and published files. ``replication`` keeps copies of a live store on several
servers. ``storage`` keeps generations of a datastore in object storage.

Threads: each call runs in a thread of its server. A live store has one lock for changes. Queries take no lock. A
background thread evicts, publishes and rewrites the log. A replica has two threads: one decides, the other follows the
leader.

Begin with ``draft_service/service.py`` for calls, ``live_store/writer.py`` for appends, ``replication/member.py`` for leaders.
"""
