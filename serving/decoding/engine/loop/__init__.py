"""One decoding step of all running requests, in order. The target is the model whose text is generated.

1. ``Engine`` (engine.py) lets waiting requests take a slot (slots.py), and its thread calls ``StepLoop.step`` (step_loop.py).
2. ``StepBatch.take`` (step_batch.py) builds the batch. ``PrefillPace`` (prefill_pace.py) says how many prompt tokens are read.
3. ``Planner.may_draft`` and ``draft_budget`` (policy/planner.py) choose the requests that draft, and limit their drafts.
4. ``DrafterPool.draft`` (drafter_pool.py) calls each drafter once, by the interface of drafter.py. If one fails, its draft is lost.
5. ``DrafterPool.permitted`` drops nodes that a grammar forbids. ``Planner.size_trees`` chooses how many nodes to verify.
6. ``DrafterPool.prefetch`` lets drafters prepare the next step while the target computes.
7. ``Passes.forward`` (model/passes.py) computes the logits of all rows in one pass of the target. A row is one token.
8. ``verify`` (verify_step.py) samples the target's token at every row (sampling/sampler.py), and accepts the drafted path that
   equals the samples (sampling/verification/match.py). If memory for the drafts is lacking, steps 7 and 8 are repeated without
   drafts.
9. ``KVCache.keep`` (model/kv_cache.py) keeps the rows of accepted tokens. ``DrafterPool.follow`` gives drafters hidden states.
10. ``Request.commit`` (request.py) appends the tokens, decodes text (text_stream.py), and returns a ``Step`` (step.py).
11. ``StepBatch.learn_tokens`` and ``DrafterPool.learn_logits`` let the drafters learn. ``Planner.record`` adds gains and costs.
12. ``LoopStats`` (stats.py) counts tokens and seconds. Requests that have ended leave. Callers read the steps from ``Generation``
    (generation.py).
"""
