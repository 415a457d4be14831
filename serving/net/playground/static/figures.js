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

/** The figures of the steps so far. The first step is the pass that ends the prompt; speeds leave it out. */
export class Figures {
  /** `tokens`, `accepted`: of all steps. `traced`: whether the steps have traces. `parts`: seconds by name, as in PARTS. */
  constructor() {
    Object.assign(this, { steps: 0, tokens: 0, accepted: 0, traced: false, seconds: 0 });
    this.parts = Object.fromEntries(Object.keys(PARTS).map((name) => [name, 0]));
    this._later = 0; // tokens of the later steps
    this._bySource = new Map(); // sources joined by "+" -> accepted tokens
  }

  add(step) {
    const tokens = tokensOf(step);
    this.tokens += tokens;
    this.traced = !step.untraced;
    for (const node of step.nodes) if (node.accepted) this._count(node.sources.join("+"));
    if (this.steps++ === 0) return;
    this._later += tokens;
    for (const [name, parts] of Object.entries(PARTS)) {
      const seconds = parts.reduce((sum, part) => sum + (step.seconds[part] ?? 0), 0);
      this.parts[name] += seconds;
      this.seconds += seconds;
    }
  }

  /** Tokens a second; null before the second step. */
  get tokensPerSecond() {
    return this.seconds > 0 ? this._later / this.seconds : null;
  }

  /** M, the tokens per pass; null before the second step. */
  get perPass() {
    return this.steps > 1 ? this._later / (this.steps - 1) : null;
  }

  /** [[source names], accepted tokens], most first. */
  get bySource() {
    return [...this._bySource].map(([names, count]) => [names.split("+"), count]).sort((a, b) => b[1] - a[1]);
  }

  _count(names) {
    this.accepted += 1;
    this._bySource.set(names, (this._bySource.get(names) ?? 0) + 1);
  }
}

/** Seconds as text: "0.84 s", "12 ms". */
export function duration(seconds) {
  if (seconds >= 0.9995) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  return `${(1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}
