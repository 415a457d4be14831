"""A cluster on Ray: store servers, workers and an HTTP front. Ray places processes; requests go over gRPC and HTTP.

``config.py`` reads the cluster's settings from a file. ``controller.py`` is the actor that starts, watches and replaces servers.
Each server is a process that its own Ray actor starts (``server_actor.py``). ``front.py`` spreads requests over workers.

Threads: the actors answer several calls at a time. The controller's loop runs in its own thread.

Begin with ``controller.py``.
"""
