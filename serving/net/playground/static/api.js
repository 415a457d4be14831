// Calls of the worker that this page comes from. Addresses are relative, so a proxy may serve the page under a path.

/** A failed call. `kind`: "key" (no or a wrong API key), "busy" (try later), "lost" (no connection), "refused" (all others). */
export class ApiError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

/** The facts of the worker: GET suffolk/info. */
export async function fetchInfo(key) {
  return (await call("suffolk/info", key, {})).json();
}

/** The passages of `datastores` in which the end of `tokens` occurs: POST suffolk/passages. */
export async function fetchPassages(key, tokens, datastores) {
  return (await call("suffolk/passages", key, post({ tokens, datastores }))).json();
}

/** The chunks of a stream as they come. Raises ApiError, also if the connection ends before the answer does. */
export async function* streamChunks(path, key, body, signal) {
  const response = await call(path, key, { ...post({ ...body, stream: true }), signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  while (true) {
    const { value, done } = await orLost(reader.read());
    if (done) throw lost();
    buffer += value;
    const events = buffer.split("\n\n");
    buffer = events.pop();
    for (const event of events) {
      const data = event.slice("data: ".length);
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError("refused", chunk.error.message);
      yield chunk;
    }
  }
}

/** The request that posts `body` as JSON. */
export function post(body) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
}

/** The response of a call that succeeded. Raises ApiError. */
export async function call(path, key, request) {
  const headers = { ...request.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  const response = await orLost(fetch(path, { ...request, headers, credentials: "same-origin" }));
  if (response.ok) return response;
  throw new ApiError(kindOf(response.status), await messageOf(response));
}

function kindOf(status) {
  if (status === 401) return "key";
  return status === 429 || status === 503 ? "busy" : "refused";
}

async function messageOf(response) {
  const text = await response.text().catch(() => "");
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text.trim() || `The server answered with status ${response.status}.`; // a proxy's page, or a server that is starting
  }
}

async function orLost(promise) {
  try {
    return await promise;
  } catch (error) {
    throw error.name === "AbortError" ? error : lost();
  }
}

function lost() {
  return new ApiError("lost", "The connection to the worker was lost.");
}
