// Words that the text may be in the middle of. A text that ends inside a word has other tokens than the whole word.

import { fetchNext } from "./datastore_api.js";
import { placeOf } from "./matched_text.js";

const MOST = 4;
const TOKENS = 3; // the most tokens of the beginning of a word

/**
 * The most frequent tokens that begin with the end of the text, if they would match more, or more often: `[{text, count, whole}]`,
 * where `whole` is all of the text with the token `text`. The query and what was found for it are those of fetchTree.
 */
export async function fetchCompletions(query, { tree, context }, signal) {
  const size = context.tokens.length;
  const cuts = Array.from({ length: Math.min(TOKENS, size - 1) }, (_, at) => at + 1); // tokens to leave out
  if (!cuts.length) return [];
  const trees = await fetchNext(query, cuts.map((cut) => context.tokens.slice(0, -cut)), signal);
  for (const [at, next] of trees.entries()) {
    const begin = query.cut + placeOf(query.text.slice(query.cut), context.starts[size - cuts[at]]);
    const [start, ending] = [query.text.slice(0, begin), query.text.slice(begin)];
    const longer = next.texts
      .map((text, node) => ({ text, count: next.counts[node] }))
      .filter(({ text }) => text.startsWith(ending) && text !== ending);
    const count = longer.reduce((sum, each) => sum + each.count, 0);
    const reached = next.match_length + cuts[at]; // tokens of the text that match if the last ones become one
    if (count && (reached > tree.match_length || (reached === tree.match_length && count > tree.match_count))) {
      return longer.slice(0, MOST).map((each) => ({ ...each, whole: start + each.text }));
    }
  }
  return [];
}
