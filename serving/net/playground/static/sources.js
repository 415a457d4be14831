// Colours of the sources of drafted tokens, the same in all views. Colours are set as CSS variables, so light and dark follow
// style.css. Every coloured thing also has its sources in words.

const SLOTS = {
  datastore: 1,
  "prompt-lookup": 2,
  eagle: 3,
  "draft-model": 4,
  prediction: 5,
  "token-recycling": 6,
  hierarchy: 7,
  redrafter: 8,
  "early-exit": 9,
  "parallel-samples": 11,
};
const OTHER = 10;

/** The CSS colour of a source, as in "var(--source-1)". Unknown sources, such as plugins, share one colour. */
export function sourceColor(name) {
  return `var(--source-${Object.hasOwn(SLOTS, name) ? SLOTS[name] : OTHER})`;
}

/** The names as text: "datastore + prompt-lookup"; for none: "the model". */
export function sourceText(names) {
  return names.length ? names.join(" + ") : "the model";
}

/** Give `element` the colours of `names`: the variables --tint (the first source) and --band (all of them, side by side). */
export function paint(element, names) {
  if (!names.length) return;
  const share = 100 / names.length;
  const stops = names.map((name, at) => `${sourceColor(name)} ${at * share}% ${(at + 1) * share}%`);
  element.style.setProperty("--tint", sourceColor(names[0]));
  element.style.setProperty("--band", `linear-gradient(to right, ${stops.join(", ")})`);
}

/** A list of the sources with their colours, for a legend. */
export function sourceLegend(names) {
  const list = document.createElement("ul");
  list.className = "legend";
  for (const name of names) {
    const item = document.createElement("li");
    const mark = document.createElement("span");
    mark.className = "swatch";
    mark.style.setProperty("--tint", sourceColor(name));
    item.append(mark, name);
    list.append(item);
  }
  return list;
}
