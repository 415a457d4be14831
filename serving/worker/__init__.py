"""The worker: decodes for many callers at a time, over gRPC and as OpenAI's API.

``service.py`` admits a request, hands it to the engine of ``serving/decoding`` and streams its text. ``openai`` turns OpenAI's
requests into the worker's, and texts into OpenAI's answers: chats, tools, responses, log-probabilities.

Threads: the engine has one thread. Each call waits in a thread of its server. A slow or absent caller ends only its own
request.

Begin with ``service.py`` and ``openai/app.py``.
"""
