// The order of search results: guides that have the words in a title, the title of the page first; public names that are
// the words; titles in the reference (commands, keys, errors) and in pages for maintainers; guides that have the words in
// their text; and then the rest.
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

  score([page, title, , , score, , kind]) {
    if (kind === "object" || kind === "index") {
      return (score >= this.objNameMatch - 5 ? 300 : 0) + score;
    }
    const guide = /^docs\/(?!api\/|commands-reference$|configuration$|coverage$|errors$|first-papers$|ui-api$)/.test(page);
    if (kind !== "title" && score < this.title) {
      return (guide ? 100 : 0) + score; // in the text alone
    }
    const asked = new URLSearchParams(location.search).get("q").toLowerCase().split(/\s+/);
    const isPage = asked.some((word) => title.split(" > ")[0].toLowerCase().includes(word));
    return (guide ? 400 : 200) + (isPage ? 50 : 0) + score;
  },
};
