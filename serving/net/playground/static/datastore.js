// The page of a draft service: looks the typed text up in the chosen datastore at every change.

import { ApiError } from "./api.js";
import { fetchCompletions } from "./completions.js";
import { fetchPlaces, fetchStores, fetchTree } from "./datastore_api.js";
import { choicesOf, completionsView, counted, matchView, pathText, pathTokens, placesView, treeView } from "./datastore_view.js";
import { make } from "./dom.js";
import { MatchedText, placeOf } from "./matched_text.js";
import { short } from "./visible.js";

const DEBOUNCE = 40; // milliseconds without a key
const RETRY = 1000; // milliseconds between two tries while there is no connection
const MOST = 4000; // characters at the end of the text that are sent
const byId = (id) => document.getElementById(id);
const field = byId("text");
const typed = new MatchedText(field, byId("marks"));
let choices = []; // of datastores, as in choicesOf
let latest = 0; // number of the latest look-up; answers to earlier ones are dropped
let calls = new AbortController(); // of the latest look-up
let timer; // of the next look-up

byId("form").addEventListener("submit", (event) => event.preventDefault());
byId("form").addEventListener("input", (event) => {
  if (event.target.id === "key") return;
  setBusy(true);
  schedule(choices.length ? lookUp : start, DEBOUNCE);
});
byId("key").addEventListener("change", start);
start();

/** Ask for the datastores, fill the form with them, and look the text up. */
async function start() {
  const number = begin();
  let stores;
  try {
    stores = await fetchStores(byId("key").value);
  } catch (error) {
    if (number === latest) showError(error);
    return;
  }
  if (number !== latest) return;
  byId("key").removeAttribute("aria-invalid");
  choices = choicesOf(stores);
  const before = byId("store").value;
  byId("store").replaceChildren(...choices.map(({ label }) => make("option", { value: label, selected: label === before }, label)));
  if (choices.length) await lookUp();
  else showNotice("This key may read no datastore of this server.");
}

function schedule(work, milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(work, milliseconds);
}

/** Give up what runs. Returns the number of the look-up that begins. */
function begin() {
  clearTimeout(timer);
  calls.abort();
  calls = new AbortController();
  latest += 1;
  return latest;
}

async function lookUp() {
  const number = begin();
  const query = readForm();
  if (!query) return;
  setBusy(true);
  try {
    const found = await fetchTree(query, calls.signal);
    if (number !== latest) return;
    byId("notice").hidden = true;
    show(query, found);
    await Promise.all([showPlaces(query, found, found.match, number), showCompletions(query, found, number)]);
    if (number === latest) setBusy(false);
  } catch (error) {
    if (number === latest) showError(error);
  }
}

/** What the form asks for; null if that is nothing, or wrong. */
function readForm() {
  const choice = choices[Math.max(byId("store").selectedIndex, 0)];
  byId("facts").textContent = `${counted(choice.tokens, "token")} · ${counted(choice.documents, "document")}`;
  const text = field.value.replace(/\p{Surrogate}/gu, "\ufffd"); // half a character has no UTF-8
  const wrong = [...byId("form").elements].find((each) => !each.checkValidity());
  if (!wrong && text && choice.tokenizer) {
    const value = (id) => byId(id).valueAsNumber;
    const bounds = { max_match: value("match"), max_depth: value("depth"), max_nodes: value("nodes") };
    const cut = Math.max(0, text.length - MOST);
    return { text, cut, names: choice.names, bounds, limit: value("places"), key: byId("key").value };
  }
  byId("results").hidden = true;
  byId("notice").hidden = true;
  typed.mark("", null);
  if (wrong) wrong.reportValidity();
  else if (!choice.tokenizer) showNotice(`${choice.label} was built from token ids and has no tokenizer, so that no text can be looked up.`);
  return null;
}

/** Show the match and the tree. */
function show(query, found) {
  const { tree, context } = found;
  const first = context.tokens.length - tree.match_length; // token of the match
  const start = tree.match_length ? query.cut + placeOf(query.text.slice(query.cut), context.starts[first]) : query.text.length;
  typed.mark(query.text, start);
  found.match = { tokens: context.tokens.slice(first), text: query.text.slice(start), isMatch: true };
  showFigures(query, found);
  byId("tree-card").replaceChildren(...treeView(found, several(query), (index) => select(query, found, index)));
  byId("results").hidden = false;
  const count = counted(tree.match_count, "occurrence");
  byId("live").textContent = `${tree.match_length} of ${counted(context.tokens.length, "token")} match, ${count}.`;
}

/** Whether the results are those of an earlier text. */
function setBusy(isBusy) {
  byId("results").setAttribute("aria-busy", String(isBusy));
}

function showFigures(query, found) {
  byId("figures").replaceChildren(matchView(found, several(query)));
}

/** The names of the datastores if they are several, else none. */
function several({ names }) {
  return names.length > 1 ? names : [];
}

/** Offer whole words if the text ends inside one. Raises ApiError. */
async function showCompletions(query, found, number) {
  const completions = await fetchCompletions(query, found, calls.signal);
  if (number !== latest) return;
  byId("completions").replaceChildren(...completionsView(completions, write));
  byId("completions").hidden = !completions.length;
}

/** Replace the text, as if it were typed. */
function write(text) {
  field.value = text;
  field.focus();
  lookUp();
}

/** Show the occurrences of the match and of the path to node `index` behind it. */
function select(query, found, index) {
  const { match, tree } = found;
  const continuation = pathText(tree, index);
  const pattern = { tokens: [...match.tokens, ...pathTokens(tree, index)], text: match.text + continuation, continuation };
  showPlaces(query, found, pattern, latest).catch(showError);
}

/** Show the occurrences of `pattern`, unless another look-up has begun. Raises ApiError. */
async function showPlaces(query, found, pattern, number) {
  const isFound = pattern.tokens.length > 0;
  let parts;
  try {
    const { occurrences, milliseconds } = isFound ? await fetchPlaces(query, pattern.tokens, calls.signal) : { occurrences: [], milliseconds: 0 };
    parts = placesView(occurrences, pattern.tokens.length, several(query).length > 0);
    if (pattern.isMatch) found.milliseconds += milliseconds;
  } catch (error) {
    if (error.kind !== "refused") throw error;
    parts = make("p", { class: "muted" }, error.message); // the operator may not show them
  }
  if (number !== latest) return;
  showFigures(query, found);
  byId("places-card").hidden = !isFound;
  byId("places-card").replaceChildren(placesHeading(pattern, () => showPlaces(query, found, found.match, latest).catch(showError)), parts);
}

function placesHeading(pattern, onBack) {
  const title = make("h2", {}, "Where ", make("span", { class: "mono" }, short(pattern.text, 60)), " occurs");
  if (pattern.isMatch) return title;
  const add = make("button", { type: "button" }, "Add it to the text");
  add.addEventListener("click", () => write(field.value + pattern.continuation));
  const back = make("button", { type: "button" }, "Back to the match");
  back.addEventListener("click", onBack);
  return make("div", { class: "spread" }, title, make("div", { class: "row" }, add, back));
}

function showNotice(text) {
  byId("notice").className = "notice bad";
  byId("notice").textContent = text;
  byId("notice").hidden = false;
}

/** Say what went wrong, and try again if it may pass. The text and the results so far stay. */
function showError(error) {
  if (error.name === "AbortError") return;
  if (!(error instanceof ApiError)) throw error;
  if (error.kind === "key") {
    byId("access").open = true;
    byId("key").setAttribute("aria-invalid", "true");
    showNotice(byId("key").value ? "The server does not accept this API key." : "This server needs an API key.");
    byId("key").focus();
  } else if (error.kind === "refused") showNotice(error.message);
  else {
    showNotice(error.kind === "lost" ? "No connection to the server. Trying again …" : `${error.message} Trying again …`);
    schedule(start, RETRY);
  }
}
