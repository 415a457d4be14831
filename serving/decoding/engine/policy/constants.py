"""All tuned constants of the drafting policy. A cost in tokens is a time, divided by the time of a token in plain decoding."""

from __future__ import annotations

# SpeculationBudget: limits losses.
REFILL = 0.01
"""Tokens that each step of a request adds to its budgets. Useless drafts cost at most 1 % in the long run."""
START = 6.0
"""Tokens in a new budget. They suffice to try some sizes of trees, and to see what is accepted, even if a row is expensive."""
RESUME = 0.3
"""Tokens, beside the cost of a small tree, with which a paused budget resumes drafting. Lookups alone would use up fewer tokens."""
MOST_SAVED = 40.0
"""The most tokens in a budget. Each open request may overdraw it by half of this. So old gains and losses do not add up."""
STAKE = 0.25
"""Share of a budget that the models of one draft may take."""
LEAST_STAKE = 0.12
"""Tokens that a request may risk in a pass even if the budget is empty: enough for a second row."""
DRAFT_STAKE = 0.75
"""Tokens of model time that a draft may take in addition to ``STAKE``. One pass of a draft model takes about half a token."""
GIFT = 0.05
"""Share of the gains of retrieval that goes to the budget of models, to pay for trials of models."""
INSTALMENT = 0.03
"""Share of a deferred cost that each step pays: about thirty steps pay for a prefill."""
START_UP = 0.5
"""Seconds of unusually slow drafts that are not subtracted from a budget, for each group of sources."""
UNUSUAL = 4.0
"""A draft's time above this multiple of the usual time is deferred: a single slow read of a cold file shows no trend."""

# AcceptanceModel: estimates gains.
MEMORY = 0.97
"""Share of the evidence that remains after a verified draft: about the last thirty drafts count."""
RECOVERY = 0.995
"""Share of the evidence that remains after an unverified draft: it fades in a few hundred steps."""
SHARE_PRIOR = 0.6
"""Prior probability that the target accepts a model's best candidate."""
PRIOR_WEIGHT = 4.0
"""Weight of a prior, in tokens, drafts or candidates. Twenty useless steps reduce scores to a tenth."""
OVERLAP = 0.75
"""Prior of the overlap of two drafts: the share of the shorter draft's tokens that the longer draft has too."""

# DraftGate: when to run a source.
TRIALS = 0.005
"""Tokens that each step saves for trials of a refused source. So trials take this share of the time."""
PREFILL_MARGIN = 1.5
"""A prefill must save this multiple of its cost, because its gain is uncertain."""
ANSWER_TOKENS = 128.0
"""Prior length of a generated text."""

# Planner: how many nodes to verify.
MARGIN = 1.02
"""Least expected speed-up of a pass with trees. It is above 1, because costs and scores are estimates."""
FEW_ROWS = 8
"""Rows over which the cost of one more row is averaged, because the cost of single rows has jumps."""
HOPE = 0.7
"""When trees are sized, uncertain sizes of passes count as cheaper by this many standard deviations, so that they are tried."""
CAUTION = 0.3
"""When a pass is subtracted from a budget, an uncertain size counts as slower by this many standard deviations."""
LEAST_BOOKED = 0.5
"""Least share of a row's measured cost that is subtracted, because few passes cannot tell a cheap row from a free row."""
RECHECK = 100
"""After this many passes with drafts, one pass without drafts measures the cost of plain decoding again."""
