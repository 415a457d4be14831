"""A cluster on Ray: store servers, workers and an HTTP front. Ray places processes; requests go over gRPC and HTTP.

``config.py`` is the cluster's file. ``controller.py`` is the actor that starts, watches and replaces servers, each a process beside
an actor of Ray (``server_actor.py``). ``front.py`` spreads requests over workers.

Threads: the actors answer several calls at a time. The controller's loop runs in its own thread.

Begin with ``controller.py``.
"""
