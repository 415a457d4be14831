#!/bin/sh
# An EAGLE head for SmolLM2-135M-Instruct on two CPU cores; see docs/research-log.md for its learning curve.
# usage: recipes/smollm2_eagle.sh MODEL OUTPUT CORPUS...   (conversations and source code, some 400,000 tokens in all)
set -eu
model=$1 output=$2
shift 2
exec suffolk train eagle --model "$model" --dtype float32 --output "$output" --corpus "$@" \
    --window 512 --batch 4 --passes 5 --learning-rate 5e-4 --set draft_share=0.25 --set warmup=0.05 \
    --held-out 0.04 --set evaluate_windows=32 --set feature_cache=4G
