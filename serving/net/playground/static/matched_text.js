// A text field whose longest match is marked. The marks lie behind the field, in an element of the same size and font.

import { make } from "./dom.js";

export class MatchedText {
  constructor(field, marks) {
    Object.assign(this, { _field: field, _marks: marks, _text: "", _start: null });
    field.addEventListener("input", () => this._draw());
    field.addEventListener("scroll", () => this._scroll());
    new ResizeObserver(() => this._fit()).observe(field.parentElement);
  }

  /** Mark the text from place `start` (UTF-16) to its end; null: nothing. `text`: the text that was looked up. */
  mark(text, start) {
    Object.assign(this, { _text: text, _start: start });
    this._draw();
  }

  _draw() {
    const now = this._field.value;
    const holds = this._start !== null && now.startsWith(this._text.slice(0, this._start)); // while the next answer is not there
    const start = holds ? Math.min(this._start, now.length) : now.length;
    this._marks.replaceChildren(now.slice(0, start), make("mark", {}, now.slice(start)), "\n");
    this._fit();
  }

  /** Make the field as high as its text, up to the limit of the style. */
  _fit() {
    this._field.style.height = "0";
    this._field.style.height = `${this._field.scrollHeight + 2}px`;
    this._scroll();
  }

  _scroll() {
    this._marks.scrollTop = this._field.scrollTop;
  }
}

/** The place in UTF-16 of the character `count` of `text`, where a character is a code point. */
export function placeOf(text, count) {
  return Array.from(text).slice(0, count).join("").length;
}
