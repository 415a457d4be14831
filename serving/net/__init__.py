"""What the servers of datastores and of decoding share: connections, access, limits, metrics, messages.

``server.py`` starts a gRPC and an HTTP server on the same service. ``authenticator.py`` and ``access_rules.py`` say who a caller is
and what it may do, ``admission.py`` how many calls run at a time, ``quota.py`` and ``usage.py`` how much a tenant may use.
``proto`` has the messages, ``messages`` packs and checks those of the draft service, ``playground`` has the web pages.

Threads: gRPC calls have a pool's, HTTP runs in an event loop of its own with a pool for work. Counters have locks of their own.

Begin with ``server.py``.
"""
