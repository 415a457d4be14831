"""All tuned constants of the drafting policy. Tokens stand for the time of a token in plain decoding."""

from __future__ import annotations

# SpeculationBudget: what drafting may lose.
REFILL = 0.01
"""Tokens a step of a request adds to its budgets: useless drafts cost at most 1 % in the long run."""
START = 1.0
"""Tokens in a new budget: enough to see whether drafts are accepted at all."""
RESUME = 0.3
"""Tokens an empty budget must regain before drafting resumes: one cheap draft."""
MOST_SAVED = 40.0
"""Tokens a budget holds at most, and twice what it may be overdrawn for each open request: the past is forgotten beyond."""
STAKE = 0.25
"""Share of a budget that one pass may risk."""
LEAST_STAKE = 0.12
"""Tokens a request may risk in a pass whatever the budget holds: a second row must be affordable."""
DRAFT_STAKE = 0.75
"""Tokens of model time that a draft may take on top of the stake: a first pass of a draft model takes half a token."""
GIFT = 0.05
"""Share of the gains of retrieval that goes to the budget of models: they must be tried to be known."""
INSTALMENT = 0.03
"""Share of a deferred cost that each step pays: prefill is worth some thirty steps."""
UNUSUAL = 4.0
"""Drafts that take this many times the usual time defer the rest: a cold file says nothing of the next draft."""

# AcceptanceModel: what drafts bring.
MEMORY = 0.97
"""Share of that record that remains after a verified draft: some thirty drafts count."""
ADAPTION = 0.2
"""Weight of the latest draft in the usual time of drafts: five drafts count."""
RECOVERY = 0.995
"""Share that remains after a draft that was not verified: a bad record fades in some hundred steps."""
SHARE_PRIOR = 0.6
"""Probability that the target accepts a model's best candidate, until it is known."""
PRIOR_WEIGHT = 4.0
"""Tokens, drafts or candidates that any prior is worth: after twenty useless steps scores count a tenth."""
OVERLAP = 0.75
"""Share of the shorter of two drafts that repeats the longer: both are right about the same tokens."""

# DraftGate: when to run a source.
FIRST_PAUSE = 16
"""Refusals before a source is tried again; each trial that fails doubles it."""
LONGEST_PAUSE = 256
"""Refusals that the doubling ends at."""
PREFILL_MARGIN = 1.5
"""Times its cost that prefill must save: which steps gain is known afterwards."""
ANSWER_TOKENS = 128.0
"""Length of an answer until some have ended."""

# Planner: how many nodes to verify.
MARGIN = 1.02
"""Trees must be expected to speed up a pass by this much: costs and scores are estimates."""
FEW_ROWS = 8
"""Rows over which the cost of a further row is taken: single rows come in steps."""
RECHECK = 200
"""Passes with drafts after which one runs without: the cost of plain decoding stays known."""
NOISE = 1.15
"""Factor by which the booked cost of a pass may differ from the expected one: the rest is another program's."""
