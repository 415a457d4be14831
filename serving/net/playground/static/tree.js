// Draws a draft tree as an accessible SVG picture.

import { sourceColor, sourceText } from "./sources.js";
import { short } from "./visible.js";

const SVG = "http://www.w3.org/2000/svg";
const BOX = { height: 36, padding: 8, gap: 26, row: 44, margin: 4, letter: 7.4, small: 6, most: 16, band: 3 };

/**
 * A picture of the tree `nodes`, with its root at the left. It is an ARIA tree: one tab stop, and the arrow keys move in it.
 *
 * A node is `{token, text, parent, probability?, count?, sources, verified?, accepted?}`. Parents come before their children;
 * `parent` is the index of a node, or -1 for the root. `probability`: 0..1. `count`: occurrences. `sources`: names, drawn as
 * colours; none for a token that the model sampled. `verified: false` is drawn dashed, `accepted: true` in bold.
 *
 * @param {object[]} nodes
 * @param {object} options
 *   label: name of the picture for screen readers.
 *   root: text before the tree, drawn as its root; left out if undefined.
 *   colorOf(source): its CSS colour.
 *   describe(node): the node in words, for screen readers and tooltips.
 *   onSelect(index): called after a click or Enter on a node.
 * @returns {SVGSVGElement} of fixed size; put it into an element with the class "tree-scroll".
 */
export function drawTree(nodes, { label = "Draft tree", root, colorOf = sourceColor, describe = description, onSelect } = {}) {
  const places = layOut(nodes, root);
  const svg = element("svg", {
    class: "tree",
    role: "tree",
    "aria-label": `${label}, ${nodes.length} ${nodes.length === 1 ? "node" : "nodes"}`,
    width: places.width,
    height: places.height,
    viewBox: `0 0 ${places.width} ${places.height}`,
  });
  nodes.forEach((node, at) => svg.append(edge(node, places, at)));
  if (root !== undefined) svg.append(rootBox(root, places));
  const boxes = nodes.map((node, at) => nodeBox(node, places, at, colorOf, describe(node)));
  svg.append(...boxes);
  moveWithKeys(svg, nodes, boxes, places, onSelect);
  return svg;
}

/** The children of each node: `childrenOf(nodes)[at]`. Those of the root are at `nodes.length`. Accepted ones come first. */
export function childrenOf(nodes) {
  const children = Array.from({ length: nodes.length + 1 }, () => []);
  nodes.forEach((node, at) => children[node.parent < 0 ? nodes.length : node.parent].push(at));
  for (const each of children) each.sort((a, b) => Number(Boolean(nodes[b].accepted)) - Number(Boolean(nodes[a].accepted)));
  return children;
}

function layOut(nodes, root) {
  const children = childrenOf(nodes);
  const depths = [];
  for (const node of nodes) depths.push(node.parent < 0 ? 0 : depths[node.parent] + 1);
  const widths = [];
  nodes.forEach((node, at) => {
    widths[depths[at]] = Math.max(widths[depths[at]] ?? 0, boxWidth(short(node.text, BOX.most), numbers(node)));
  });
  const rootWidth = root === undefined ? 0 : boxWidth(short(root, BOX.most), "");
  const lefts = [];
  let left = BOX.margin + (root === undefined ? 0 : rootWidth + BOX.gap);
  for (const width of widths) {
    lefts.push(left);
    left += width + BOX.gap;
  }
  const { rows, count } = rowsOf(nodes, children);
  return {
    children,
    depths,
    rootWidth,
    x: (at) => lefts[depths[at]],
    y: (at) => BOX.margin + rows[at] * BOX.row,
    boxWidth: (at) => widths[depths[at]],
    rows,
    width: Math.ceil(Math.max(left - BOX.gap, BOX.margin + rootWidth) + BOX.margin),
    height: Math.max(count, 1) * BOX.row - (BOX.row - BOX.height) + 2 * BOX.margin,
  };
}

/** The row of each node: that of its first child, so that the first path is a straight line. Without recursion: trees may be deep. */
function rowsOf(nodes, children) {
  const rows = [];
  const pending = [...children[nodes.length]].reverse();
  let count = 0;
  let opened = false; // whether the last node went on in its row
  while (pending.length) {
    const at = pending.pop();
    if (!opened) count += 1;
    rows[at] = count - 1;
    opened = children[at].length > 0;
    pending.push(...[...children[at]].reverse());
  }
  return { rows, count };
}

function boxWidth(text, below) {
  const letters = Array.from(text).reduce((sum, each) => sum + (each.codePointAt(0) >= 0x1100 ? 1.7 : 1), 0);
  return 2 * BOX.padding + Math.max(letters * BOX.letter, below.length * BOX.small, 14);
}

function numbers(node) {
  const found = [];
  if (node.probability !== undefined && node.probability !== null) found.push(percent(node.probability));
  if (node.count !== undefined && node.count !== null) found.push(node.count.toLocaleString("en"));
  return found.join(" · ");
}

/** A share as text: "42 %", "0.4 %". */
export function percent(share) {
  const value = 100 * share;
  return `${value >= 9.5 || value === 0 ? Math.round(value) : value.toPrecision(1)} %`;
}

function edge(node, places, at) {
  if (node.parent < 0 && !places.rootWidth) return element("g", {});
  const fromX = node.parent < 0 ? BOX.margin + places.rootWidth : places.x(node.parent) + places.boxWidth(node.parent);
  const fromY = (node.parent < 0 ? BOX.margin : places.y(node.parent)) + BOX.height / 2;
  const [toX, toY] = [places.x(at), places.y(at) + BOX.height / 2];
  const middle = toX - BOX.gap / 2;
  const line = fromY === toY ? `M${fromX},${fromY}H${toX}` : `M${fromX},${fromY}H${middle - 6}C${middle + 6},${fromY} ${middle - 6},${toY} ${toX},${toY}`;
  return element("path", { class: `edge ${state(node)}`, d: line });
}

function rootBox(root, places) {
  const group = element("g", { class: "node root", transform: `translate(${BOX.margin},${BOX.margin})` });
  group.append(frame(places.rootWidth), label(short(root, BOX.most), places.rootWidth / 2, BOX.height / 2 + 4, "token-text"));
  return group;
}

function nodeBox(node, places, at, colorOf, words) {
  const width = places.boxWidth(at);
  const below = numbers(node);
  const group = element("g", {
    class: `node ${state(node)}`,
    role: "treeitem",
    tabindex: at === 0 ? 0 : -1,
    "aria-level": places.depths[at] + 1,
    "aria-selected": "false",
    "aria-label": words,
    transform: `translate(${places.x(at)},${places.y(at)})`,
  });
  if (node.sources.length) group.style.setProperty("--tint", colorOf(node.sources[0]));
  else group.classList.add("sampled");
  const title = element("title", {});
  title.textContent = words;
  group.append(title, frame(width), ...bands(node, width, colorOf));
  group.append(label(short(node.text, BOX.most), width / 2, below ? 15 : BOX.height / 2 + 3, "token-text"));
  if (below) group.append(label(below, width / 2, 28, "number"));
  return group;
}

function frame(width) {
  return element("rect", { class: "frame", width, height: BOX.height, rx: 6 });
}

function bands(node, width, colorOf) {
  const part = (width - 12) / Math.max(node.sources.length, 1);
  return node.sources.map((name, at) => {
    const band = element("rect", { class: "band", x: 6 + at * part, y: BOX.height - BOX.band - 1, width: part, height: BOX.band });
    band.style.setProperty("--tint", colorOf(name));
    return band;
  });
}

function label(text, x, y, kind) {
  const found = element("text", { class: kind, x, y, "text-anchor": "middle" });
  found.textContent = text;
  return found;
}

function state(node) {
  if (node.accepted) return "accepted";
  return node.verified === false ? "unverified" : node.verified ? "rejected" : "";
}

/** A node in words, for screen readers and tooltips. */
function description(node) {
  const fate = { accepted: node.sources.length ? "accepted" : "", unverified: "not verified", rejected: "rejected" }[state(node)];
  const parts = [
    JSON.stringify(node.text),
    node.probability === undefined || node.probability === null ? "" : `probability ${percent(node.probability)}`,
    node.count === undefined || node.count === null ? "" : `${node.count.toLocaleString("en")} occurrences`,
    node.sources.length ? `drafted by ${sourceText(node.sources)}` : "sampled by the model",
    fate,
  ];
  return parts.filter(Boolean).join(", ");
}

function moveWithKeys(svg, nodes, boxes, places, onSelect) {
  const select = (at) => {
    for (const each of boxes) each.setAttribute("aria-selected", String(each === boxes[at]));
    if (onSelect) onSelect(at);
  };
  const focus = (at) => {
    if (at === undefined || at < 0) return;
    for (const each of boxes) each.setAttribute("tabindex", "-1");
    boxes[at].setAttribute("tabindex", "0");
    boxes[at].focus();
  };
  svg.addEventListener("click", (event) => {
    const at = boxes.indexOf(event.target.closest(".node"));
    if (at < 0) return;
    focus(at);
    select(at);
  });
  svg.addEventListener("keydown", (event) => {
    const at = boxes.indexOf(event.target);
    if (at < 0) return;
    const order = nodes.map((_, each) => each).sort((a, b) => places.rows[a] - places.rows[b] || a - b);
    const inRow = order.indexOf(at);
    const moves = {
      ArrowLeft: () => focus(nodes[at].parent),
      ArrowRight: () => focus(places.children[at][0]),
      ArrowDown: () => focus(order.slice(inRow).find((each) => places.rows[each] > places.rows[at])),
      ArrowUp: () => focus(order.slice(0, inRow).reverse().find((each) => places.rows[each] < places.rows[at])),
      Home: () => focus(order[0]),
      End: () => focus(order[order.length - 1]),
      Enter: () => select(at),
      " ": () => select(at),
    };
    if (!Object.hasOwn(moves, event.key)) return;
    event.preventDefault();
    moves[event.key]();
  });
}

function element(name, attributes) {
  const found = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  return found;
}
