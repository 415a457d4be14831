"""OpenAI's API of the worker. A request goes through these modules in this order:

1. ``app`` has the routes. ``endpoint`` reads the body, admits the request, and answers it. Begin with these two.
2. ``bodies``, ``responses_body`` and ``content`` are the bodies that pydantic checks. ``known_fields`` and ``other_fields`` refuse
   fields that should change the answer, but would have no effect here.
3. ``generate_calls`` converts a body to one ``GenerateCall`` for each text. ``history`` and the chat template make the prompt of
   a chat. ``sampling_fields`` makes its settings. ``guided``, ``json_schema`` and ``tool_choice`` make its grammar. Before that,
   ``responses_body``, ``responses_items`` and ``responses_tools`` turn a request of the Responses API into a chat.
4. ``text_run`` starts the texts in the engine, and yields their steps.
5. ``answer`` turns the steps into an object or events. ``chat``, ``completions`` and ``responses`` are its forms. ``chat`` splits
   a text with ``reasoning``, ``tool_format`` and ``tool_calls``. ``token_texts`` has the texts of tokens for log-probabilities.
6. ``errors`` has the form of errors, and ``origins`` checks the web origins of the settings.

In this folder, a call is a call of a tool. A call of the worker's service is a ``GenerateCall``, and its names have ``generate``.

Threads: the event loop reads, sends, and follows the engine's steps. Parsing, encoding, and starting texts run in worker threads;
large bodies take turns in one thread. The engine has its own thread. A client that disconnects cancels its texts.
"""
