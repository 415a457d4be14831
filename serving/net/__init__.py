"""The parts that draft servers and workers share: connections, access, limits, metrics, messages.

    server, config, endpoint, tls        start, stop, settings, addresses and certificates of a server
    grpc_server, grpc_interceptors       gRPC: its threads, and the checks that every call passes
    http_server, http_middleware         HTTP: its connections, and the checks that every request passes
    http_app, http_body                  pages that all servers have, bodies of requests and of errors
    identity, access_file, authenticator callers, their tokens and roles
    admission, quota                     how many calls run, and how much a tenant may use
    call_errors, logs, metrics, tracing  errors on the wire, and records of calls
    url, channel, tokens                 for clients: addresses and connections; token ids as bytes

``proto`` has the messages, ``messages`` packs and checks the draft service's messages, ``playground`` has the web pages.

Threads: gRPC calls run in a thread pool. HTTP runs in its own event loop, with a thread pool for work. Each counter has
its own lock.

Begin with ``server.py``.
"""
