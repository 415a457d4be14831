"""A cluster of store servers, workers and an HTTP front on Ray.

Ray must run, on all nodes, with suffolk[ray] installed: 'ray start --head', then 'ray start
--address=HEAD:6379' on the others."""

EXAMPLES = """cluster.yaml:
  name: code
  folder: /var/lib/suffolk
  stores: {datastores: {code: s3://bucket/code}}
  workers: {model: /models/qwen, count: 2, gpus: 1}
  front: {port: 8000}"""
