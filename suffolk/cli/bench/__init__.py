"""Measure retrieval, building, decoding, serving and live datastores. Most are compared to a baseline in the same run.

Every measurement prints tables and writes a JSON file (machine, versions, commit, seed, command
line) and a plot. With --report, it also writes one HTML page of all that. The extra packages: pip
install 'suffolk[bench]'"""

EXAMPLES = """examples:
  suffolk bench retrieval STORE --against draftretriever --grpc --json retrieval.json
  suffolk bench counts STORE --json counts.json
  suffolk bench build --tokenizer MODEL_FOLDER src/ --json build.json
  suffolk bench decode --model MODEL_FOLDER --datastore STORE --prompts prompts/ --limit 10
  suffolk bench batch --model MODEL_FOLDER --datastore STORE --prompts prompts/ --json batch.json
  suffolk bench memory STORE --limits 1 0.5 0.2 --json memory.json
  suffolk bench live STORE --against arctic-inference --json live.json
  suffolk bench service STORE --json service.json --report service.html
  suffolk bench rollouts --model MODEL_FOLDER --prompts reasoning.jsonl --json rollouts.json
  suffolk bench agents --model MODEL_FOLDER --files src/ --json agents.json"""
