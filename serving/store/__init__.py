"""What a server of datastores runs.

``draft_service`` answers look-ups, drafts, appends and deletions, over gRPC and HTTP. ``live_store`` is a datastore that is
appended to: log, memory index, published files. ``replication`` keeps copies of one on several servers. ``storage`` keeps
generations of a datastore in object storage.

Threads: each call has one of its server's. A live store has one lock for changes, and queries take none; its keeper evicts,
publishes and rewrites the log in the background. A replica has a thread that decides, and one that follows its leader.

Begin with ``draft_service/service.py`` for a call, ``live_store/writer.py`` for an append, ``replication/member.py`` for who leads.
"""
