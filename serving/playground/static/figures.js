// Figures of an answer, from the traces of its steps (docs/reference/step-trace.md).

/** The parts of a step's time, as shown: name -> parts of the trace. */
export const PARTS = {
  draft: ["draft", "wait"],
  pass: ["forward"],
  verification: ["verify"],
  other: ["compact", "other"],
};

/** Tokens that the step added to the text. Steps without a trace say how many. */
export function tokensOf(step) {
  if (step.untraced) return step.tokens;
  return step.nodes.filter((node) => node.accepted).length + (step.sampled ? 1 : 0);
}

/** Seconds of the step, over all parts. */
export function secondsOf(step) {
  return Object.values(step.seconds).reduce((sum, each) => sum + each, 0);
}

/**
 * The figures of all steps so far. The first step is the pass that ends the prompt; speeds leave it out.
 *
 * `tokensPerSecond` and `perPass` (M) are null before the second step. `traced`: whether the steps have traces. `bySource`: [[source names], accepted tokens], most first.
 * `parts`: [name, seconds] in the order of PARTS.
 */
export function figuresOf(steps) {
  const later = steps.slice(1);
  const tokens = steps.reduce((sum, step) => sum + tokensOf(step), 0);
  const fromLater = later.reduce((sum, step) => sum + tokensOf(step), 0);
  const seconds = later.reduce((sum, step) => sum + secondsOf(step), 0);
  const accepted = new Map();
  for (const node of steps.flatMap((step) => step.nodes)) {
    if (node.accepted) accepted.set(node.sources.join("+"), (accepted.get(node.sources.join("+")) ?? 0) + 1);
  }
  return {
    tokens,
    passes: later.length,
    seconds,
    tokensPerSecond: seconds > 0 ? fromLater / seconds : null,
    perPass: later.length ? fromLater / later.length : null,
    traced: steps.length > 0 && !steps[0].untraced,
    accepted: [...accepted.values()].reduce((sum, each) => sum + each, 0),
    bySource: [...accepted].map(([names, count]) => [names.split("+"), count]).sort((a, b) => b[1] - a[1]),
    parts: Object.entries(PARTS).map(([name, parts]) => [name, sumOf(later, parts)]),
  };
}

/** Seconds as text: "0.84 s", "12 ms". */
export function duration(seconds) {
  if (seconds >= 0.9995) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  return `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}

function sumOf(steps, parts) {
  return steps.reduce((sum, step) => sum + parts.reduce((all, part) => all + (step.seconds[part] ?? 0), 0), 0);
}
