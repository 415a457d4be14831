"""Datastores on other machines, with the methods of a local datastore.

``remote_datastore`` is a client of one server. ``fanout`` is a client of several servers with shards and copies.
``text_appender`` appends finished texts in the background. Clients depend on a server's messages only.

Threads: clients are thread-safe. A call to several servers waits in the thread of its caller. Prefetched drafts run in
a pool. Another thread probes the servers. No draft or lookup outlives its deadline.

Begin with ``remote_datastore.py`` and ``fanout/datastore.py``.
"""
