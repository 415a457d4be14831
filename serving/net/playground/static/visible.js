// Makes the whitespace and the control characters of a token visible.

const MARKS = { " ": "·", "\n": "↵", "\r": "␍", "\t": "→", "\u00a0": "⍽" };
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/u;

/** `text` with marks for spaces, line ends and tabs, and a box for each character that has no shape or changes the direction. */
export function visible(text) {
  return Array.from(text, (each) => MARKS[each] ?? (HIDDEN.test(each) ? "▯" : each)).join("");
}

/** `text` with a box for each character that has no shape or changes the direction; line ends and tabs stay. */
export function plain(text) {
  return Array.from(text, (each) => (HIDDEN.test(each) && !"\n\t".includes(each) ? "▯" : each)).join("");
}

/** `text` after `visible`, cut to `most` characters. An empty text is "∅". */
export function short(text, most) {
  const shown = Array.from(visible(text));
  if (!shown.length) return "∅";
  return shown.length <= most ? shown.join("") : `${shown.slice(0, most - 1).join("")}…`;
}
