// Calls of the draft service that this page comes from (docs/reference/wire.md). Addresses are relative.

import { call, post } from "./api.js";

const BEFORE = 16; // tokens before and after an occurrence
const AFTER = 24;
const NEXT = 128; // the most tokens that may follow a context

/** The datastores that the caller may read: [{name, tokens, documents, vocab_size, tokenizer, generation, ...}]. */
export async function fetchStores(key) {
  const { datastores } = await (await call("v1/info", key, {})).json();
  return Object.entries(datastores).map(([name, facts]) => ({ ...facts, name }));
}

/**
 * The longest match at the end of a text, and the tree of what follows: `{tree, context, milliseconds}`.
 *
 * The query: `text`, from place `cut` on; `names` of datastores; `bounds`: max_match, max_depth and max_nodes; `limit` of occurrences;
 * `key`.
 */
export async function fetchTree({ text, cut, names, bounds, key }, signal) {
  const body = { ...search(names), ...bounds, text: text.slice(cut), texts: true, by_datastore: names.length > 1 };
  const { trees, context, milliseconds } = await ask("v1/draft", key, body, signal);
  return { tree: trees[0], context, milliseconds };
}

/** For each context of tokens, the tokens that follow it: trees of depth 1. The query is that of fetchTree. */
export async function fetchNext({ names, bounds, key }, contexts, signal) {
  const body = { ...search(names), ...bounds, contexts, max_depth: 1, max_nodes: NEXT, texts: true };
  return (await ask("v1/draft", key, body, signal)).trees;
}

/** Places of a pattern of tokens: `{occurrences, milliseconds}`. The query is that of fetchTree. */
export async function fetchPlaces({ names, limit, key }, tokens, signal) {
  return ask("v1/occurrences", key, { ...search(names), tokens, limit, context: AFTER, before: BEFORE, texts: true }, signal);
}

/** Whether the text before or after an occurrence goes on beyond what was fetched. */
export function isCut(place, pattern) {
  return { before: place.offset > place.before.length, after: place.tokens.length >= pattern + AFTER };
}

function search(names) {
  return { datastores: names.map((name) => ({ name })) };
}

async function ask(path, key, body, signal) {
  const response = await call(path, key, { ...post(body), signal });
  return { ...(await response.json()), milliseconds: serverTime(response) };
}

/** The time that the server took, from the header Server-Timing. */
function serverTime(response) {
  return Number(/dur=([\d.]+)/.exec(response.headers.get("Server-Timing") ?? "")?.[1] ?? NaN);
}
