"""Plans the machines that serve a corpus at a load, and what they cost.

``service_costs.py`` holds a machine's measured costs, ``shard.py`` and ``queueing.py`` predict one server, and ``plan.py``
chooses the number of servers. Begin with ``plan.py``.
"""
