// The page that `suffolk generate --trace` writes: the run is in the page itself.

import { AnswerView } from "./answer_view.js";
import { make } from "./dom.js";
import { StepView } from "./step_view.js";

const run = JSON.parse(document.getElementById("run").textContent);
const answers = document.getElementById("answers");
const box = document.getElementById("step");
let shown = null; // the answer whose step is shown

document.getElementById("model").textContent = run.model;
document.getElementById("prompt").textContent = run.prompt;
document.getElementById("settings").append(
  ...Object.entries(run.settings).map(([name, value]) => make("li", {}, `${name} ${value}`)),
);
for (const answer of run.answers) {
  const view = new AnswerView(answer.title, answer.drafter, (at) => showStep(answer, view, at));
  view.add(...answer.steps);
  answers.append(view.element);
}

function showStep(answer, view, at) {
  const detail = new StepView(answer.title, view.steps, move, async (step, node) => {
    const found = answer.passages[`${view.steps.indexOf(step)}.${node}`];
    if (!found) throw new Error("this page holds those of accepted tokens only.");
    return found;
  });
  function move(to) {
    shown?.mark(undefined);
    shown = view;
    view.mark(to);
    detail.show(to);
  }
  move(at);
  box.replaceChildren(detail.element);
  detail.element.scrollIntoView({ block: "nearest" });
}
