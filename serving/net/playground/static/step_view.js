// One step: its draft tree, the fate of each node, its time, and the passages that its nodes come from.

import { make } from "./dom.js";
import { PARTS, duration, tokensOf } from "./figures.js";
import { sourceLegend } from "./sources.js";
import { drawTree } from "./tree.js";
import { short } from "./visible.js";

const DATASTORE = "datastore";

/** The view of one step of an answer. `element` is its card. */
export class StepView {
  /**
   * `title`: of the answer. `steps`: of the answer. `onMove(at)`: the reader wants to see step `at`.
   * `passagesOf(step, node)`: a promise of the passages of a node, `{datastores: [...]}`; it may reject.
   */
  constructor(title, steps, onMove, passagesOf) {
    Object.assign(this, { _title: title, _steps: steps, _onMove: onMove, _passagesOf: passagesOf });
    this.element = make("section", { class: "card", "aria-label": "Step", tabindex: -1 });
  }

  /** Show step `at`. */
  show(at) {
    const step = this._steps[at];
    if (step.untraced) {
      const why = "Drafts are shown only to callers with the role admin for the chosen datastores.";
      this.element.replaceChildren(make("h2", {}, this._title), make("p", {}, why));
      return;
    }
    const names = [...new Set(step.nodes.flatMap((node) => node.sources))];
    this._passages = make("div", { "aria-live": "polite" });
    const parts = [this._heading(at), make("p", {}, summary(step, at))];
    if (step.nodes.length) {
      if (names.includes(DATASTORE)) {
        this._passages.append(muted("Select a node of a datastore to see the passages it comes from."));
      }
      parts.push(sourceLegend(names), stateLegend(), ...this._trees(step, at), this._passages);
    }
    const focused = document.activeElement?.dataset.move; // a button that this replaces
    this.element.replaceChildren(...parts);
    if (focused) (this.element.querySelector(`[data-move="${focused}"]:enabled`) ?? this.element).focus();
  }

  _heading(at) {
    const move = (to, text) => {
      const isEnd = to < 0 || to >= this._steps.length;
      const button = make("button", { type: "button", disabled: isEnd, "data-move": text }, text);
      button.addEventListener("click", () => this._onMove(to));
      return button;
    };
    const buttons = make("div", { class: "row" }, move(at - 1, "Previous step"), move(at + 1, "Next step"));
    const title = `Step ${at + 1} of ${this._steps.length}, ${this._title.toLowerCase()}`;
    return make("div", { class: "spread" }, make("h2", {}, title), buttons);
  }

  /** The tree of the verified nodes, and a button that adds the others. */
  _trees(step, at) {
    const verified = step.nodes.filter((node) => node.verified).length; // the first ones
    const box = make("div", { class: "tree-scroll" });
    const draw = (size) => box.replaceChildren(this._tree(step, step.nodes.slice(0, size), at));
    draw(verified || step.nodes.length);
    if (!verified || verified === step.nodes.length) return [box];
    const rest = step.nodes.length - verified;
    const label = `Show the ${count(rest, "node")} that ${rest === 1 ? "was" : "were"} not verified`;
    const button = make("button", { type: "button", "aria-pressed": "false" }, label);
    button.addEventListener("click", () => {
      const isShown = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!isShown));
      draw(isShown ? verified : step.nodes.length);
    });
    return [box, button];
  }

  _tree(step, drafted, at) {
    const last = drafted.reduce((found, node, index) => (node.accepted ? index : found), -1);
    const nodes = [...drafted];
    if (step.sampled) nodes.push({ ...step.sampled, parent: last, sources: [], accepted: true });
    return drawTree(nodes, {
      label: `Draft tree of step ${at + 1}`,
      root: step.context_end,
      onSelect: (index) => this._select(step, nodes, index),
    });
  }

  async _select(step, nodes, index) {
    const passages = this._passages;
    const shown = (...parts) => passages.replaceChildren(...parts);
    if (!nodes[index].sources.includes(DATASTORE)) {
      shown(muted(`No datastore proposed “${short(nodes[index].text, 40)}”.`));
      return;
    }
    shown(muted("Searching …"));
    try {
      const found = await this._passagesOf(step, index);
      shown(make("h3", {}, `Passages with “${short(nodes[index].text, 40)}”`), ...found.datastores.map(passageList));
    } catch (error) {
      shown(make("p", { class: "notice bad" }, `The passages could not be found: ${error.message}`));
    }
  }
}

/** The token ids of the context and of the path to node `index`. */
export function pathTokens(step, index) {
  const path = [];
  for (let at = index; at >= 0; at = step.nodes[at].parent) path.unshift(step.nodes[at].token);
  return [...step.context, ...path];
}

function summary(step, at) {
  const times = Object.entries(PARTS).map(([name, parts]) => {
    return `${name} ${duration(parts.reduce((sum, part) => sum + (step.seconds[part] ?? 0), 0))}`;
  });
  const time = `Time: ${times.join(", ")}.`;
  if (!step.nodes.length) {
    const what = at ? "Nothing was drafted. The model sampled one token." : "The pass that ended the prompt gave the first token.";
    return `${what} ${time}`;
  }
  const verified = step.nodes.filter((node) => node.verified).length;
  const drafted = tokensOf(step) - (step.sampled ? 1 : 0);
  const proposed = step.nodes.length + step.nodes_left_out;
  const rest = step.nodes_left_out ? ` The least likely ${step.nodes_left_out} are left out.` : "";
  const sampled = step.sampled ? ", and the model sampled one token behind them" : ", and the last of them ended the text";
  return `${count(proposed, "node")} proposed, ${verified} verified in one pass, ${drafted} accepted${sampled}.${rest} ${time}`;
}

function stateLegend() {
  const entry = (state, text) => make("span", {}, make("i", { class: state }), text);
  const entries = [entry("accepted", "accepted"), entry("rejected", "rejected"), entry("unverified", "not verified")];
  return make("div", { class: "states" }, ...entries, make("span", {}, "numbers: probability that the path is accepted"));
}

function passageList(found) {
  const name = make("p", { class: "small" }, make("b", {}, found.datastore), " ");
  if (found.unknown) {
    name.append(`unknown: ${found.unknown}`);
    return name;
  }
  if (!found.passages.length) {
    name.append("has no passage with it.");
    return name;
  }
  name.append(`has the last ${count(found.tokens, "token")} ${count(found.count, "time")}; ${found.passages.length} shown.`);
  return make("div", {}, name, make("ol", { class: "passages" }, ...found.passages.map((each) => passageItem(found, each))));
}

function passageItem(found, passage) {
  const place = passage.segment ? `document ${passage.document} of ${passage.segment}` : `document ${passage.document}`;
  const metadata = Object.entries(passage.metadata).map(([name, value]) => `${name}: ${value}`);
  const store = passage.datastore === found.datastore ? [] : [passage.datastore];
  const facts = [...store, place, `token ${passage.offset}`, ...metadata].join(" · ");
  const origin = make("div", { class: "origin" }, make("b", {}, passage.id ?? "(no id)"), ` · ${facts}`);
  const text = make("div", { class: "text-box" }, make("mark", {}, found.text), passage.following);
  return make("li", {}, origin, text);
}

function muted(text) {
  return make("p", { class: "muted small" }, text);
}

function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}
