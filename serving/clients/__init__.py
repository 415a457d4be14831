"""Datastores on other machines, with the methods of a local one.

``remote_datastore`` is a client of one server, ``fanout`` one of several with shards and copies. ``text_appender`` appends finished
texts in the background. They know a server's messages, and nothing of how it works.

Threads: clients are thread-safe. Those of several servers ask them in a pool. No call outlives its deadline.

Begin with ``connect.py``.
"""
