"""Generates the text of a model, called the target. Drafters propose tokens, and the target verifies them.

``engine`` has the loop, the policy that decides what is drafted, sampling and the model's passes. ``drafters`` has the sources of
drafts: retrieval, neural heads, and drafters that merge others. ``replay`` measures drafters on recorded texts, without a model.

Threads: one thread steps an engine; callers hand over requests and read texts through queues. Drafters run in the step's thread,
except retrieval over a network and drafts that are prepared while the model computes.

Begin with ``engine/loop/step_loop.py``: one step. ``engine/loop/drafter.py`` is the interface of a drafter.
"""
