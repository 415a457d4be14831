"""Plans the machines that serve a corpus at a load, and what they cost.

``service_costs.py`` holds what a machine was measured to need, ``shard.py`` and ``queueing.py`` predict one server, ``plan.py``
chooses how many. Begin with ``plan.py``.
"""
