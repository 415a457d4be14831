"""Datastores on other machines, with the methods of a local one.

``remote_datastore`` is a client of one server, ``fanout`` one of several with shards and copies. ``text_appender`` appends finished
texts in the background. They know a server's messages, and nothing of how it works.

Threads: clients are thread-safe. A call to several servers waits in the thread of its caller; prefetched drafts run in a pool, and
another thread probes the servers. No draft or lookup outlives its deadline.

Begin with ``remote_datastore.py`` and ``fanout/datastore.py``.
"""
