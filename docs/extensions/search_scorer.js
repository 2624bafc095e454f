// The order of search results: guides that have the words in a title, public names that are the words, titles in the
// reference (commands, keys, errors), guides that have the words in their text, and then the rest.
"use strict";

var Scorer = {
  objNameMatch: 50,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  score([page, , , , score, , kind]) {
    const reference = /^(CHANGELOG|docs\/(api\/.*|commands-reference|configuration|coverage|errors|ui-api))$/.test(page);
    const titled = kind === "title" || score >= this.title;
    if (kind === "object" || kind === "index") {
      return (score >= this.objNameMatch - 5 ? 300 : 0) + score;
    }
    return (reference ? (titled ? 200 : 0) : titled ? 400 : 100) + score;
  },
};
