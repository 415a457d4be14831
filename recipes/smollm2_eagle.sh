#!/bin/sh
# An EAGLE head for SmolLM2-135M-Instruct on one CPU core; see docs/research-log.md for its learning curve.
# usage: recipes/smollm2_eagle.sh MODEL OUTPUT CORPUS...   (conversations, 1.6 million tokens, most of them answers of MODEL)
set -eu
model=$1 output=$2
shift 2
exec suffolk train eagle --model "$model" --dtype bfloat16 --output "$output" --corpus "$@" \
    --window 512 --batch 4 --passes 2 --learning-rate 5e-4 --set draft_share=0.25 --set warmup=0.05 \
    --held-out 0.03 --set evaluate_windows=40 --set evaluate_every=500 --set feature_cache=6G --set threads=1
