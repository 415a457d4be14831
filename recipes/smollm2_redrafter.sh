#!/bin/sh
# A ReDrafter head for SmolLM2-135M-Instruct on two CPU cores; see docs/research-log.md for its learning curve.
# usage: recipes/smollm2_redrafter.sh MODEL OUTPUT CORPUS...   (conversations and source code, some 400,000 tokens in all)
set -eu
model=$1 output=$2
shift 2
exec suffolk train redrafter --model "$model" --dtype float32 --output "$output" --corpus "$@" \
    --window 512 --batch 4 --passes 5 --learning-rate 4e-4 --set head_option.distillation=true --set draft_share=0.0625 --set warmup=0.05 \
    --held-out 0.04 --set evaluate_windows=12 --set feature_cache=4G
