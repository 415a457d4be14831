// One answer: its figures, and its text with each token coloured by source. Steps are opened by click or by keys.

import { figureList, make } from "./dom.js";
import { Figures, duration, tokensOf } from "./figures.js";
import { paint, sourceText } from "./sources.js";
import { percent } from "./tree.js";

const DRAW_MS = 100; // drawing takes time from a model on the same machine

/** The view of an answer. `element` is its card; `text` is the text so far. */
export class AnswerView {
  /** `onStep(at)`: called when the reader opens step `at`. */
  constructor(title, subtitle, onStep) {
    Object.assign(this, { steps: [], text: "", figures: new Figures(), _isDrawn: false });
    this._onStep = onStep;
    this._drawn = 0; // steps
    this._marks = []; // [number of the step, its element], in order
    this._box = make("div");
    this._text = make("div", { class: "text-box", role: "group", "aria-label": `Text ${title.toLowerCase()}` });
    const heading = make("div", { class: "spread" }, make("h2", {}, title), make("span", { class: "muted small" }, subtitle));
    this.element = make("section", { class: "card" }, heading, this._box, this._text);
    this._text.addEventListener("click", (event) => this._open(event.target.closest(".step")));
    this._text.addEventListener("keydown", (event) => this._move(event));
    this._draw();
  }

  /** Add steps as they come. They are drawn within DRAW_MS. */
  add(...steps) {
    for (const step of steps) {
      this.steps.push(step);
      this.figures.add(step);
      this.text += step.pieces.map((piece) => piece.text).join("");
    }
    if (this._isDrawn) setTimeout(() => this._draw(), DRAW_MS);
    this._isDrawn = false;
  }

  /** Show whether more text is to come. At the end, the text is shown from its beginning. */
  setRunning(running) {
    if (!running) {
      this._draw();
      this._text.scrollTop = 0;
    }
    this._text.classList.toggle("running", running);
    this._text.setAttribute("aria-busy", String(running));
  }

  /** Mark step `at` as the one that is shown; none if it is undefined. */
  mark(at) {
    for (const [number, element] of this._marks) {
      if (number === at) {
        element.setAttribute("aria-current", "true");
        this._reach(element);
        const [top, bottom] = [element.offsetTop, element.offsetTop + element.offsetHeight];
        if (top < this._text.scrollTop || bottom > this._text.scrollTop + this._text.clientHeight) this._text.scrollTop = top - 24;
      } else element.removeAttribute("aria-current");
    }
  }

  _draw() {
    const follows = this._text.scrollHeight - this._text.scrollTop - this._text.clientHeight < 40;
    const news = document.createDocumentFragment();
    while (this._drawn < this.steps.length) this._drawStep(this._drawn++, news);
    this._text.append(news);
    if (follows) this._text.scrollTop = this._text.scrollHeight;
    this._showFigures();
    this._isDrawn = true;
  }

  _drawStep(at, box) {
    const step = this.steps[at];
    const pieces = step.pieces.filter((piece) => piece.text);
    if (!pieces.length) return;
    const drafted = tokensOf(step) - (step.sampled ? 1 : 0);
    const element = make("span", {
      class: "step",
      role: "button",
      tabindex: this._marks.length ? -1 : 0,
      "aria-description": step.untraced ? undefined : `step ${at + 1}, ${drafted} drafted`,
    });
    for (const piece of pieces) {
      const token = make("span", { title: step.untraced ? undefined : origin(at, piece) }, piece.text);
      if (piece.sources.length) token.className = "token";
      paint(token, piece.sources);
      element.append(token);
    }
    this._marks.push([at, element]);
    box.append(element);
  }

  _showFigures() {
    const found = this.figures;
    this._box.replaceChildren(
      figureList([
        ["tokens/s", found.tokensPerSecond?.toFixed(1) ?? "–", "Tokens a second after the first one"],
        ["M", found.traced ? (found.perPass?.toFixed(2) ?? "–") : "–", "Tokens per pass of the model, after the prompt's pass"],
        ["tokens", found.tokens.toLocaleString("en"), "Tokens of the answer"],
        ["drafted", found.traced ? percent(found.accepted / found.tokens) : "–", "Share of the tokens that were drafted"],
      ]),
      ...(found.traced ? [partsBar(found), sourceCounts(found)] : []),
    );
  }

  _open(element) {
    if (!element) return;
    this._reach(element);
    this._onStep(this._marks.find(([, each]) => each === element)[0]);
  }

  _reach(element) {
    for (const [, each] of this._marks) each.setAttribute("tabindex", each === element ? "0" : "-1");
  }

  _move(event) {
    const at = this._marks.findIndex(([, element]) => element === event.target);
    if (at < 0) return;
    const last = this._marks.length - 1;
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last }[event.key];
    if (to !== undefined) {
      const element = this._marks[Math.min(Math.max(to, 0), last)][1];
      this._reach(element);
      element.focus();
    } else if (event.key === "Enter" || event.key === " ") this._open(event.target);
    else return;
    event.preventDefault();
  }
}

function origin(at, piece) {
  return `Step ${at + 1}: ${piece.sources.length ? "drafted by" : "sampled by"} ${sourceText(piece.sources)}`;
}

/** The time by part, as a bar and in numbers. */
function partsBar(figures) {
  const bar = make("div", { class: "parts", "aria-hidden": "true" });
  const list = make("ul", { class: "legend", "aria-label": "Time by part" });
  Object.entries(figures.parts).forEach(([name, seconds], at) => {
    const share = figures.seconds ? seconds / figures.seconds : 0;
    const piece = make("span", { class: `part-${at}` });
    piece.style.setProperty("--share", `${100 * share}%`);
    if (share > 0) bar.append(piece);
    list.append(make("li", {}, make("span", { class: `swatch part-${at}` }), `${name} ${duration(seconds)}`));
  });
  return make("div", {}, make("p", { class: "legend-title" }, "Time after the first token"), bar, list);
}

/** Tokens by source: the legend of the text's colours, with numbers. */
function sourceCounts(figures) {
  const list = make("ul", { class: "legend", "aria-label": "Tokens by source" });
  for (const [names, count] of figures.bySource) {
    const mark = make("span", { class: "swatch" });
    paint(mark, names);
    list.append(make("li", {}, mark, `${sourceText(names)} ${count}`));
  }
  list.append(make("li", {}, make("span", { class: "swatch" }), `the model ${figures.tokens - figures.accepted}`));
  return make("div", {}, make("p", { class: "legend-title" }, "Tokens by source"), list);
}
