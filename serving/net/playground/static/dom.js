// Builds elements. Text is always set as text, never as markup: corpora and models may write anything.

/** An element with attributes and children, which are elements or texts. An attribute that is false or undefined is left out. */
export function make(name, attributes = {}, ...children) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value !== undefined) found.setAttribute(key, value === true ? "" : value);
  }
  found.append(...children);
  return found;
}

/** A list of figures: [[name, value, explanation?], ...]. */
export function figureList(figures) {
  return make(
    "dl",
    { class: "figures" },
    ...figures.map(([name, value, title]) => make("div", { title }, make("dt", {}, name), make("dd", {}, value))),
  );
}
