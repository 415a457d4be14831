// The page of a worker: the form, two answers that run one after the other, and the steps of both.

import { AnswerView } from "./answer_view.js";
import { ApiError, fetchInfo, fetchPassages, streamChunks } from "./api.js";
import { make } from "./dom.js";
import { StepView, pathTokens } from "./step_view.js";

const byId = (id) => document.getElementById(id);
const form = byId("form");
let info = null; // facts of the worker, once a key is accepted
let running = null; // AbortController of the run
let spoken = 0; // characters of the answer that were announced
let shown = null; // the answer whose step is shown

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
byId("stop").addEventListener("click", () => running?.abort());
byId("key").addEventListener("change", loadInfo);
loadInfo();

/** Ask for the worker's facts, and fill the form with them. Returns whether it worked. */
async function loadInfo() {
  try {
    info = await fetchInfo(byId("key").value);
  } catch (error) {
    info = null;
    showError(error, loadInfo);
    return false;
  }
  hideNotice();
  byId("key").removeAttribute("aria-invalid");
  byId("model").textContent = `${info.model} · version ${info.version}`;
  byId("drafter").replaceChildren(
    ...[...info.drafters, "none"].map((name) => make("option", { value: name, selected: name === info.default_drafter }, name)),
  );
  byId("nodes").placeholder = String(info.max_nodes);
  byId("nodes").max = String(info.max_nodes);
  byId("kind").value = info.has_chat_template ? "chat" : "text";
  byId("kind").querySelector("[value=chat]").disabled = !info.has_chat_template;
  byId("store-list").replaceChildren(...info.datastores.map(({ name }) => storeBox(name)));
  byId("stores").hidden = !info.datastores.length;
  return true;
}

function storeBox(name) {
  return make("label", { class: "check" }, make("input", { type: "checkbox", name: "store", value: name, checked: true }), name);
}

/** The datastores that are ticked. */
function chosenStores() {
  return [...form.querySelectorAll("input[name=store]:checked")].map((box) => box.value);
}

/** Whether the worker may show this caller the drafts of the ticked datastores. */
function mayTrace() {
  const chosen = info.datastores.filter(({ name }) => chosenStores().includes(name));
  return chosen.length ? chosen.every(({ sources }) => sources) : info.sources;
}

async function run() {
  if (running) return;
  const wrong = [...form.elements].find((each) => !each.checkValidity());
  if (wrong) {
    wrong.closest("details")?.setAttribute("open", "");
    wrong.reportValidity();
    return;
  }
  if (!info && !(await loadInfo())) return;
  hideNotice();
  running = new AbortController();
  setRunning(true);
  byId("step").replaceChildren();
  byId("answers").replaceChildren();
  byId("answers").hidden = false;
  try {
    const drafted = await generate("With drafts", byId("drafter").value, {});
    if (byId("race").checked) compare(drafted, await generate("Without drafts", "none", { remember: false }));
    else showNotice("good", "Done.");
  } catch (error) {
    showError(error, run);
  } finally {
    running = null;
    setRunning(false);
  }
}

/** Run one answer and show it as it comes. Raises ApiError, or AbortError after Stop. */
async function generate(title, drafter, fields) {
  const traced = mayTrace();
  const view = new AnswerView(title, drafter, (at) => showStep(title, view, at));
  byId("answers").append(view.element);
  view.setRunning(true);
  spoken = 0;
  let last = performance.now();
  let counted = 0;
  try {
    const { path, body } = request(drafter, { ...fields, ...(traced ? { trace: true } : {}) });
    for await (const chunk of streamChunks(path, byId("key").value, body, running.signal)) {
      const choice = chunk.choices[0];
      if (choice?.suffolk) view.add(...choice.suffolk.steps);
      else if (!traced && choice) {
        const now = performance.now();
        const delta = choice.delta ?? { content: choice.text };
        const text = (delta.reasoning_content ?? "") + (delta.content ?? "");
        const tokens = (chunk.usage?.completion_tokens ?? counted) - counted; // the count may be ahead of the text
        if (text || tokens) view.add(untraced(text, tokens, (now - last) / 1000));
        counted += tokens;
        last = now;
      }
      announce(view.text, false);
    }
  } finally {
    view.setRunning(false);
    announce(view.text, true);
  }
  return view;
}

/** The call for the form's values. */
function request(drafter, own) {
  const isChat = byId("kind").value === "chat";
  const number = (id) => byId(id).valueAsNumber;
  const chosen = chosenStores();
  const suffolk = { drafter, ...own };
  if (byId("nodes").value) suffolk.max_nodes = number("nodes");
  if (chosen.length < info.datastores.length) suffolk.datastores = chosen;
  const body = {
    temperature: number("temperature"),
    max_tokens: number("tokens"),
    seed: number("seed"),
    stream_options: { include_usage: true, continuous_usage_stats: true },
    suffolk,
  };
  if (byId("prediction").value) body.prediction = { type: "content", content: byId("prediction").value };
  const prompt = byId("prompt").value;
  return isChat
    ? { path: "v1/chat/completions", body: { ...body, messages: [{ role: "user", content: prompt }] } }
    : { path: "v1/completions", body: { ...body, prompt } };
}

/** A step without a trace, for a caller who may not see drafts: its text, its tokens, and the time since the last chunk. */
function untraced(text, tokens, seconds) {
  return { untraced: true, tokens, nodes: [], pieces: [{ text, sources: [] }], seconds: { other: seconds } };
}

function showStep(title, view, at) {
  const passages = (step, node) => fetchPassages(byId("key").value, pathTokens(step, node), chosenStores());
  const detail = new StepView(title, view.steps, move, passages);
  function move(to) {
    shown?.mark(undefined);
    shown = view;
    view.mark(to);
    detail.show(to);
  }
  move(at);
  byId("step").replaceChildren(detail.element);
  detail.element.scrollIntoView({ block: "nearest" });
}

function compare(drafted, plain) {
  const [fast, slow] = [drafted.figures, plain.figures];
  const ratio = fast.tokensPerSecond && slow.tokensPerSecond ? fast.tokensPerSecond / slow.tokensPerSecond : null;
  const speed = ratio ? ` With drafts the model was ${ratio.toFixed(2)} times as fast.` : "";
  if (drafted.text === plain.text) showNotice("good", `Both texts are identical.${speed}`);
  else {
    const at = [...drafted.text].findIndex((letter, place) => letter !== [...plain.text][place]);
    const place = at < 0 ? drafted.text.length : at;
    const why = "In fp32 and bf16, rounding can decide a near-tie of two tokens the other way.";
    showNotice("bad", `The texts differ from character ${place + 1} on. ${why}${speed}`);
  }
}

function setRunning(isRunning) {
  byId("run").disabled = isRunning;
  byId("stop").disabled = !isRunning;
}

/** Read new text aloud in pieces that end with a space, so that a screen reader is not flooded. */
function announce(text, isLast) {
  const end = isLast ? text.length : text.lastIndexOf(" ");
  if (end - spoken < 80 && !isLast) return;
  byId("live").textContent = text.slice(spoken, end);
  spoken = end;
}

function hideNotice() {
  byId("notice").hidden = true;
}

function showNotice(kind, text, ...more) {
  byId("notice").className = `notice ${kind}`;
  byId("notice").replaceChildren(make("div", {}, text), ...more);
  byId("notice").hidden = false;
}

/** Say what went wrong. Settings and the text so far stay as they are. */
function showError(error, retry) {
  if (error.name === "AbortError") {
    showNotice("", "Stopped.");
    return;
  }
  if (!(error instanceof ApiError)) throw error;
  const again = make("button", { type: "button" }, "Try again");
  again.addEventListener("click", retry);
  if (error.kind === "key") {
    byId("access").open = true;
    byId("key").setAttribute("aria-invalid", "true");
    showNotice("bad", byId("key").value ? "The worker does not accept this API key." : "This worker needs an API key.");
    byId("key").focus();
  } else showNotice("bad", error.message, make("div", { class: "row" }, again));
}
