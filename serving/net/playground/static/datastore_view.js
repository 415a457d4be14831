// The results of one look-up: the match with its figures, the tree of continuations, and occurrences.

import { isCut } from "./datastore_api.js";
import { figureList, make } from "./dom.js";
import { drawTree, percent } from "./tree.js";
import { plain, short } from "./visible.js";

const SLOTS = 10; // colours of style.css
const MOST_STORES = 16; // of one query

/** What can be searched: each datastore alone, and those that share a tokenizer together. `stores`: as of fetchStores. */
export function choicesOf(stores) {
  const groups = new Map();
  for (const store of stores) {
    if (store.tokenizer) groups.set(store.tokenizer, [...(groups.get(store.tokenizer) ?? []), store]);
  }
  const together = [...groups.values()].filter((group) => group.length > 1 && group.length <= MOST_STORES);
  return [...stores.map((store) => [store]), ...together].map((group) => ({
    label: group.map(({ name }) => name).join(" + "),
    names: group.map(({ name }) => name),
    tokens: group.reduce((sum, { tokens }) => sum + tokens, 0),
    documents: group.reduce((sum, { documents }) => sum + documents, 0),
    tokenizer: group[0].tokenizer,
  }));
}

/** A count with its noun. */
export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** The end of a text, at most `most` characters. */
function ending(text, most) {
  const letters = Array.from(text);
  return letters.length <= most ? text : `…${letters.slice(1 - most).join("")}`;
}

/** The figures of a match. `names`: of the datastores, if they are several. */
export function matchView({ tree, context, milliseconds }, names) {
  const figures = [
    ["longest match", `${tree.match_length.toLocaleString("en")} of ${counted(context.tokens.length, "token")}`],
    ["occurrences", tree.match_count.toLocaleString("en")],
    ...names.map((name) => [`in ${name}`, tree.datastores[name].match_count.toLocaleString("en")]),
    ["server time", `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`, "of tokenizing and searching, without the network"],
  ];
  return figureList(figures);
}

/** Buttons for words that the text is in the middle of (completions.js). `onChoose(whole)`: the reader wants one. */
export function completionsView(completions, onChoose) {
  const buttons = completions.map(({ text, count, whole }) => {
    const button = make("button", { type: "button" }, `${short(text, 24)} `, make("span", { class: "muted" }, count.toLocaleString("en")));
    button.addEventListener("click", () => onChoose(whole));
    return button;
  });
  return ["The text ends inside a token. Complete it:", ...buttons];
}

/** The tree and its legend. `names`: of the datastores, if they are several. `onSelect(index)`: the reader has chosen a node. */
export function treeView({ tree, match }, names, onSelect) {
  const heading = make("h2", {}, "What follows");
  if (!tree.match_length) return [heading, make("p", { class: "muted" }, "No ending of the text occurs, so nothing follows it.")];
  if (!tree.tokens.length) return [heading, make("p", { class: "muted" }, "Nothing: every occurrence is at the end of its document.")];
  const hint = make("p", { class: "muted small" }, "Share and number of the occurrences that go on so. Select a node to see them.");
  const color = (name) => `var(--source-${1 + (Math.max(names.indexOf(name), 0) % SLOTS)})`;
  const picture = drawTree(nodesOf(tree, names), { label: "Continuations", root: ending(match.text, 14), colorOf: color, describe, onSelect });
  const box = make("div", { class: "tree-scroll" });
  box.append(picture);
  return [heading, hint, ...(names.length ? [legend(names, color)] : []), box];
}

/** The token ids of the path to node `index`. */
export function pathTokens(tree, index) {
  const path = [];
  for (let at = index; at >= 0; at = tree.parents[at]) path.unshift(tree.tokens[at]);
  return path;
}

/** The text of the path to node `index`. */
export function pathText(tree, index) {
  const path = [];
  for (let at = index; at >= 0; at = tree.parents[at]) path.unshift(tree.texts[at]);
  return path.filter((text, at) => text !== "\ufffd" || at === path.length - 1).join(""); // parts of a character
}

/** Occurrences as a list. `pattern`: number of tokens that are marked. `several`: whether to name datastores. */
export function placesView(places, pattern, several) {
  if (!places.length) return make("p", { class: "muted" }, "No occurrence is shown.");
  return make("ol", { class: "places" }, ...places.map((place) => placeItem(place, pattern, several)));
}

function placeItem(place, pattern, several) {
  const document = place.segment ? `document ${place.document} of ${place.segment}` : `document ${place.document}, in memory`;
  const facts = Object.entries(place.metadata).map(([name, value]) => `${name}: ${value}`);
  const where = [...(several ? [place.datastore] : []), `token ${place.offset.toLocaleString("en")}`, ...facts].join(" · ");
  const name = make("b", { title: document }, plain(place.id ?? document));
  const origin = make("div", { class: "origin" }, name, make("span", { class: "muted" }, plain(` · ${where}`)));
  const cut = isCut(place, pattern);
  const [before, match, after] = [place.texts.before, place.texts.match, place.texts.after].map(plain);
  const text = make("div", { class: "text-box" }, cut.before ? "… " : "", before, make("mark", {}, match), after, cut.after ? " …" : "");
  return make("li", {}, origin, text);
}

function nodesOf(tree, names) {
  return tree.tokens.map((token, at) => ({
    token,
    text: tree.texts[at],
    parent: tree.parents[at],
    probability: tree.counts[at] / tree.match_count,
    count: tree.counts[at],
    sources: names.length ? names.filter((name) => tree.datastores[name].counts[at]) : ["datastore"],
    held: names.map((name) => [name, tree.datastores[name].counts[at]]),
  }));
}

function describe(node) {
  const held = node.held.filter(([, count]) => count).map(([name, count]) => `${name} ${count.toLocaleString("en")}`);
  const parts = [JSON.stringify(node.text), counted(node.count, "occurrence"), `${percent(node.probability)} of the match`, held.join(", ")];
  return parts.filter(Boolean).join(", ");
}

function legend(names, color) {
  const items = names.map((name) => {
    const swatch = make("span", { class: "swatch" });
    swatch.style.setProperty("--tint", color(name));
    return make("li", {}, swatch, name);
  });
  return make("ul", { class: "legend" }, ...items);
}
